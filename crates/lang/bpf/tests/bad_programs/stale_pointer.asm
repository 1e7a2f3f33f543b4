    mov r6, r1
    ldxdw r7, [r6+0]
    ldxdw r8, [r6+8]
    mov r4, r7
    add r4, 14
    mov r0, 0
    jgt r4, r8, out
    mov r2, 14
    call 44
    jne r0, 0, failed
    ldxdw r7, [r6+0]        ;fixed
    ldxdw r8, [r6+8]        ;fixed
    mov r4, r7              ;fixed
    add r4, 14              ;fixed
    jgt r4, r8, failed      ;fixed
    stb [r7+0], 1
    mov r0, 1
out: exit
failed: mov r0, 0
    exit
