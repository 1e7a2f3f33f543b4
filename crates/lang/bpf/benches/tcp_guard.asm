; What tcp_guard.p4 does, by hand: drop a TCP SYN while the threshold is under the used memory; pass all else.
    ldxdw r2, [r1+0]        ; data
    ldxdw r3, [r1+8]        ; data_end
    mov r4, r2
    add r4, 14
    jgt r4, r3, drop        ; no whole Ethernet header
    ldxh r5, [r2+12]
    be16 r5
    jne r5, 0x0800, pass
    mov r4, r2
    add r4, 34
    jgt r4, r3, drop        ; no whole IPv4 header
    ldxb r5, [r2+14]
    mov r0, r5
    rsh r0, 4
    jne r0, 4, drop
    and r5, 15
    jlt r5, 5, drop
    ldxb r0, [r2+23]
    jne r0, 6, pass
    jne r5, 5, pass         ; packets with options pass
    mov r4, r2
    add r4, 54
    jgt r4, r3, drop        ; no whole TCP header
    ldxb r5, [r2+47]
    and r5, 0x12            ; SYN, ACK
    jne r5, 0x02, pass
    mov r6, r1
    mov r2, 0               ; get_tcp_mem(): threshold high, used low
    call 1000
    mov r7, r0
    rsh r7, 32
    mov32 r8, r0
    jge r7, r8, pass
drop:
    mov r0, 0
    exit
pass:
    mov r0, 1
    exit
