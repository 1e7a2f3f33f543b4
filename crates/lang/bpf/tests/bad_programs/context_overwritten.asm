    lddw r2, 0x4141414141414141
    mov r3, r1
    add r3, 16              ;fixed
    stxdw [r3+0], r2
    ldxdw r2, [r1+0]
    ldxdw r3, [r1+8]
    mov r4, r2
    add r4, 1
    mov r0, 0
    jgt r4, r3, out
    ldxb r0, [r2+0]
out: exit
