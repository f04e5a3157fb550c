// Package fleet starts what a load test needs: Memcached servers and processes of counterd
// before them, as children of this process, on free ports of loopback. It kills servers and
// starts them again, empty, and tells when what they had is copied back.
package fleet
