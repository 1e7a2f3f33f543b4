# Sourced by a test's script that runs in a mount namespace of its own: makes / a copy of the machine's files, in memory.
# What changes them leaves the machine as it is. Not chroot, in which the kernel permits no P4 VM a user namespace.
# Wants: $FOLDER, an empty folder, which stays visible with what is in it now.
mount --make-rprivate /
mkdir "$FOLDER/copy" && mount -t tmpfs none "$FOLDER/copy" && cd "$FOLDER/copy" && mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$PWD/upper,workdir=$PWD/work" root
mount -t tmpfs none root/run && mount -t proc none root/proc && mount --rbind /dev root/dev && mount --rbind /sys root/sys
cd root && pivot_root . . && umount -l . && cd /
