    mov r0, 0
again:
    jge r0, 64, out         ;fixed
    add r0, 1
    ja again
out: exit
    exit
