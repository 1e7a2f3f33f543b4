    ldxdw r2, [r1+0]
    ldxdw r3, [r1+8]
    mov r4, r2
    add r4, 14
    mov r0, 0
    jgt r4, r3, out
    mov r5, r2
    sub r5, r3              ;fixed
    stxdw [r2+0], r5
    mov r0, 1
out: exit
