/** /proc/net/dev, as kernels print it. */
import t from 'tap'
import { packetsOf } from '../../../kernel/tuning/device-packets.ts'

const TEXT = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
sealane-vx:98765432 1234    0    0    0     0          0         0  4321 765    0    0    0     0       0          0
`

t.test('received and sent together', async (t) => {
  t.equal(packetsOf(TEXT, 'sealane-vx'), 1999)
  t.equal(packetsOf(TEXT, 'lo'), 20)
  t.equal(packetsOf(TEXT, 'eth0'), undefined)
  t.equal(packetsOf('', 'lo'), undefined)
  t.equal(packetsOf('lo: 1 2', 'lo'), undefined)
})
