    ldxdw r2, [r1+0]
    ldxdw r3, [r1+8]
    mov r4, r2
    add r4, 24
    mov r0, 0
    jgt r4, r3, out         ;fixed
    ldxb r0, [r2+23]
out: exit
