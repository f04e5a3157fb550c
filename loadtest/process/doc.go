// Package process tells what processes take: CPU time, memory, calls of the system. It is
// known on Linux only, see [Known].
package process
