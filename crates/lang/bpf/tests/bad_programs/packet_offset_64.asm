    ldxdw r2, [r1+0]
    ldxdw r3, [r1+8]
    mov r4, r2
    add r4, 14
    mov r0, 0
    jgt r4, r3, out
    ldxdw r5, [r2+0]
    and r5, 1023            ;fixed
    add r2, r5
    mov r4, r2
    add r4, 1
    jgt r4, r3, out
    stb [r2+0], 0x41
    mov r0, 1
out: exit
