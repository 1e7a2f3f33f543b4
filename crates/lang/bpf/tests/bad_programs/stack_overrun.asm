    ldxw r2, [r1+16]
    and r2, 0x1ff           ;fixed
    mov r3, r10
    add r3, -512
    add r3, r2
    stb [r3+0], 1
    mov r0, 1
    exit
