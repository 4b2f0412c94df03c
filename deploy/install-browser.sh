#!/usr/bin/env bash
# Install the browser that the tests of the console drive: Debian's Chromium, and the font of their pictures. As root.
set -euo pipefail

install_chromium() {
    command -v chromium >/dev/null && return
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends chromium fonts-inter >/dev/null
}

install_chromium
chromium --version
