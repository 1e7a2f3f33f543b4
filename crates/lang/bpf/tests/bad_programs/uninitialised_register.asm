    ldxw r2, [r1+16]
    mov r3, 0               ;fixed
    jeq r2, 0, skip
    mov r3, 1
skip: mov r0, 0
    jeq r3, 0, out
    mov r0, 1
out: exit
