/** The processes that hold a UDP port, by the tables of the kernel. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { basename } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { KernelError } from '../../kernel/errors.ts'
import { reasonOf } from '../../runtime/errors.ts'
import { describePortHolders, namingPortHolders, parseUdpTable } from '../../kernel/port-holders.ts'

const TABLE = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  411: 00000000:1194 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 8124 2 0000000000000000 0
  412: 010000F6:1193 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 8125 2 0000000000000000 0
  599: 0100007F:1194 0100007F:1193 01 00000000:00000000 00:00000000 00000000  1000        0 9001 2 0000000000000000 0
`

t.test('the kernel’s table', async (t) => {
  t.strictSame(parseUdpTable(TABLE, 4500), ['8124', '9001'])
  t.strictSame(parseUdpTable(TABLE, 4499), ['8125'], 'the far port says nothing')
  t.strictSame(parseUdpTable(TABLE, 53), [])
  fc.assert(
    fc.property(fc.string(), fc.integer({ min: 0, max: 65535 }), (text, port) => {
      parseUdpTable(text, port)
    }),
  )
})

for (const [family, any] of [
  ['udp4', '127.0.0.1'],
  ['udp6', '::1'],
] as const) {
  t.test(`who has a port, ${family}`, async (t) => {
    const socket = createSocket(family).bind(0, any)
    await once(socket, 'listening')
    t.teardown(() => socket.close())
    const { port } = socket.address()
    const me = `UDP port ${port} is taken by ${basename(process.argv0)} (process ${process.pid})`
    t.equal(await describePortHolders(port), me)
    const taken = new KernelError('EADDRINUSE', 'wg set sealane0 listen-port 1', 'Address already in use')
    const named = await namingPortHolders(taken, port)
    t.match(named, { code: 'EADDRINUSE', message: `${taken.operation}: ${me}` })
    t.equal(reasonOf(named), 'PortTaken')
    t.equal(reasonOf(new AggregateError([new Error('x'), named])), 'PortTaken', 'also among others')
    const other = new KernelError('EPERM', 'wg set sealane0', 'not permitted')
    t.equal(await namingPortHolders(other, port), other)
    t.equal(await namingPortHolders('what', port), 'what')
  })
}

t.test('nobody that is seen from here', async (t) => {
  const socket = createSocket('udp4').bind(0, '127.0.0.1')
  await once(socket, 'listening')
  const { port } = socket.address()
  socket.close()
  await once(socket, 'close')
  t.match(await describePortHolders(port), `UDP port ${port} is taken by a process that is not visible from here`)
})
