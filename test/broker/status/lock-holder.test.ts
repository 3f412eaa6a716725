/** Finds the process that holds the lock of a broker's state, from the kernel's list of locks. */
import t from 'tap'
import { lockHolder } from '../../../broker/admin/read-status.ts'

const LOCKS = `1: POSIX  ADVISORY  READ  11 fd:01:77 1073741826 1073742335
1: -> POSIX  ADVISORY  WRITE 12 fd:01:77 1073741824 1073742335
2: POSIX  ADVISORY  WRITE 13 fd:02:77 1073741824 1073742335
3: POSIX  ADVISORY  WRITE 14 fd:01:177 1073741824 1073742335
4: POSIX  ADVISORY  WRITE 15 fd:01:78 1073741824 1073742335
`

t.test('a file of another file system with the same number is another file', (t) => {
  t.equal(lockHolder(LOCKS, { fileSystem: 'fd:02', inode: 77 }), '13')
  t.equal(lockHolder(LOCKS, { fileSystem: 'fd:01', inode: 78 }), '15')
  t.equal(lockHolder(LOCKS, { fileSystem: 'fd:01', inode: 77 }), undefined, 'it is read, and waited for')
  t.equal(lockHolder(LOCKS, { fileSystem: undefined, inode: 77 }), '13', 'an unknown one: rather one too many')
  t.end()
})
