/** The overlay device never exists without the table that guards it. */
import t from 'tap'
import { KernelError } from '../../kernel/errors.ts'
import { NFT_TABLE_NODE } from '../../model/kernel-ids.ts'
import { eventually } from '../support/eventually.ts'
import { Machine } from './support/machine.ts'
import { membership, node } from './support/site.ts'

t.test('a node that cannot have its table has no overlay, and says why', async (t) => {
  const machine = new Machine(t)
  machine.join()
  const run = machine.nft.run.bind(machine.nft)
  machine.nft.run = () => Promise.reject(new KernelError('UNKNOWN', 'nft', 'no such module'))
  machine.start(t)
  const failure = (): string => machine.api.cache('RouteAgent').get('worker')?.status?.failure ?? ''
  await eventually(() => failure().includes('no such module'), { say: 'the RouteAgent says why' })
  t.match(machine.status.notReady().join(), 'no such module')
  t.notMatch(machine.kernel(), 'sealane-vx')
  machine.nft.run = run
  await machine.ready()
  await eventually(() => failure() === '', { say: 'and no longer' })
  t.match(machine.kernel(), 'sealane-vx')
})

t.test('after a restart without its Node the overlay goes on, and so do those who may use it', async (t) => {
  const machine = new Machine(t)
  machine.join()
  const first = machine.start(t)
  await machine.ready()
  await first.stop()
  const unchanged = machine.kernel()
  machine.api.drop('Node', 'worker')
  const second = machine.start(t)
  const waits = 'waiting until Node worker'
  await eventually(() => machine.status.notReady().some((one) => one.includes(`balance: ${waits}`)), { say: waits })
  t.equal(machine.kernel(), unchanged)
  machine.api.put(node('worker', '192.168.7.11', '10.42.1.0/24'))
  await machine.ready()
  t.match(machine.nft.toString(), 'ip daddr 192.168.7.11 udp dport 4810')
  await second.stop()
})

t.test('an overlay that cannot be taken out keeps the tables that say who may use it', async (t) => {
  const machine = new Machine(t)
  machine.join()
  const run = machine.start(t)
  await machine.ready()
  const deleteLink = machine.routes.deleteLink.bind(machine.routes)
  const tables: (readonly string[])[] = []
  machine.routes.deleteLink = async (...args) => {
    tables.push(await machine.nft.tables(NFT_TABLE_NODE))
    if (tables.length < 3) throw new KernelError('EBUSY', 'ip link del', 'not now')
    await deleteLink(...args)
  }
  machine.api.put(membership('leaving'))
  await run.ended
  t.equal(tables.map((names) => names.join()).join(' '), Array(3).fill(NFT_TABLE_NODE).join(' '))
  t.equal(machine.kernel(), machine.before, 'and both go in the end')
})
