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
    ldxdw r7, [r6+0]        ;mended
    ldxdw r8, [r6+8]        ;mended
    mov r4, r7              ;mended
    add r4, 14              ;mended
    jgt r4, r8, failed      ;mended
    stb [r7+0], 1
    mov r0, 1
out: exit
failed: mov r0, 0
    exit
