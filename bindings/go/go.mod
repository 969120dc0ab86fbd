module pagedkv.org/pagedkv

go 1.19
