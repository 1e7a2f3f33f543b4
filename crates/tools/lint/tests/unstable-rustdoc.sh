#!/bin/sh
# rustdoc with its unstable options, for the test of public interfaces.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
