//! Files that standard libraries would read, which no filter of system calls allows.

/// Keeps the libraries from files: the memory allocator to one arena, and panics without a backtrace. The
/// filters then end no process that does what is allowed. Must be called while the process has one thread.
pub fn read_no_files() {
    // glibc reads a setting of the kernel before it gives memory of a second arena back. Each further thread
    // gets such an arena, and the first thread when its own has no room.
    #[cfg(target_env = "gnu")]
    // SAFETY: takes integers; by contract no other thread allocates meanwhile.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
    // SAFETY: by contract no other thread reads the environment.
    unsafe { std::env::set_var("RUST_BACKTRACE", "0") };
}
