    .map counts hash 4 8 16
    ldxw r2, [r1+16]
    stxw [r10-4], r2
    mov r2, r10
    add r2, -4
    lddw r1, map counts
    call 1
    mov r2, r0
    mov r0, 0
    jeq r2, 0, out          ;fixed
    mov r3, 1
    lock add [r2+0], r3
    mov r0, 1
out: exit
