//go:build !linux

package child

import "syscall"

func apart(bool) *syscall.SysProcAttr { return nil }
