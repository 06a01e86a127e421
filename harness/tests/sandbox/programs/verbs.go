// One request to an RDMA device, which the null device answers with ENOTTY.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

type attr struct {
	id, length, flags, reserved uint16
	data                        uint64
}

type request struct {
	length, object, method, count uint16
	reserved1                     uint64
	driver, reserved2             uint32
	attrs                         [2]attr
}

func main() {
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			_ = make([]byte, 1<<20)
			runtime.GC()
		}()
	}
	fd, err := syscall.Open(os.Args[1], syscall.O_RDWR, 0)
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	out := new([2]uint64)
	ask := &request{length: 56, method: 4, count: 2}
	ask.attrs[0] = attr{id: 0, length: 4, flags: 1, data: uint64(uintptr(unsafe.Pointer(&out[0])))}
	ask.attrs[1] = attr{id: 1, length: 8, flags: 1, data: uint64(uintptr(unsafe.Pointer(&out[1])))}
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), 0xc0181b01, uintptr(unsafe.Pointer(ask)))
	group.Wait()
	runtime.KeepAlive(out)
	if errno != syscall.ENOTTY {
		fmt.Println("ioctl:", errno)
		os.Exit(1)
	}
	fmt.Println("ENOTTY")
}
