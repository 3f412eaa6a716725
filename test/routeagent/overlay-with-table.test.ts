/** The overlay device never exists without the table that guards it. */
import t from 'tap'
import { KernelError } from '../../kernel/errors.ts'
import { NFT_TABLE_NODE } from '../../model/kernel-ids.ts'
import { eventually } from '../support/eventually.ts'
import { membershipObject } from '../support/objects/cluster-objects.ts'
import { Machine } from './support/machine.ts'
import { cluster, dualStack, dualStackNode, membership, node } from './support/site.ts'

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

t.test('the overlay waits for the table of IPv6 too, unless the kernel lacks it', async (t) => {
  for (const refusal of [undefined, 'EOPNOTSUPP', 'TIMEOUT', 'UNKNOWN'] as const) {
    const machine = new Machine(t)
    machine.join()
    machine.api.put(dualStack(cluster('milano', 1, '244.0.0.0/16'), 'fd00:10:42::/56'))
    machine.api.put(dualStackNode(node('worker', '192.168.7.11', '10.42.1.0/24'), 'fd00:10:42:1::/64'))
    const run = machine.nft6.run.bind(machine.nft6)
    const decided = Promise.withResolvers<undefined>()
    const asked = Promise.withResolvers<undefined>()
    let isOver = false
    machine.nft6.run = async (...args) => {
      asked.resolve(undefined)
      await decided.promise
      if (refusal !== undefined && !isOver) throw new KernelError(refusal, 'nft', 'not this time')
      return run(...args)
    }
    machine.start(t)
    await asked.promise
    const waits = 'routes: waiting for table sealane_node'
    await eventually(() => machine.status.notReady().join().includes(waits), { say: waits })
    await eventually(() => machine.nft.toString().includes('chain access-in'), { say: 'the table of IPv4' })
    await machine.putThrough('routes', node('other', '192.168.7.12', '10.42.2.0/24'))
    t.notMatch(machine.routes.toString(), 'ip link add sealane-vx', 'no overlay with the table of IPv4 alone')
    decided.resolve(undefined)
    if (refusal === 'TIMEOUT' || refusal === 'UNKNOWN') {
      const why = `${waits}, which protects the overlay: nft: not this time`
      await eventually(() => machine.status.notReady().join().includes(why), { say: `${refusal}: it says why` })
      await machine.putThrough('routes', node('third', '192.168.7.13', '10.42.3.0/24'))
      t.notMatch(machine.routes.toString(), 'ip link add sealane-vx', `${refusal}: it may pass, and decides nothing`)
      isOver = true
    }
    await eventually(() => machine.routes.toString().includes('ip link add sealane-vx'), {
      say: `${refusal ?? 'taken'}: the overlay`,
    })
  }
})

t.test('a node that does not expose all pods has no overlay without the rules that close it', async (t) => {
  const machine = new Machine(t)
  machine.join()
  machine.api.put(membershipObject({ exposure: 'exports' }))
  const addRule = machine.routes.addRule.bind(machine.routes)
  machine.routes.addRule = (rule, ...rest) =>
    rule.action === 'blackhole'
      ? Promise.reject(new KernelError('EPERM', 'ip rule', 'not now'))
      : addRule(rule, ...rest)
  const run = machine.start(t)
  await eventually(() => machine.status.notReady().join().includes('not now'), { say: 'it says why' })
  t.notMatch(machine.routes.toString(), 'ip link add sealane-vx')
  machine.routes.addRule = addRule
  await machine.ready()
  t.match(machine.routes.toString(), 'ip link add sealane-vx')
  const drops = (): number => machine.routes.toString().split('blackhole').length - 1
  t.equal(drops(), 1)
  const deleteLink = machine.routes.deleteLink.bind(machine.routes)
  const atDeletion: number[] = []
  machine.routes.deleteLink = (...init) => {
    atDeletion.push(drops())
    return deleteLink(...init)
  }
  machine.api.put(membershipObject({ phase: 'leaving', exposure: 'exports' }))
  await run.ended
  t.strictSame([atDeletion, machine.kernel()], [[1], machine.before], 'they go after the device, and nothing stays')
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

t.test('another port is guarded before a device has it, and the old one until none has it', async (t) => {
  const machine = new Machine(t)
  machine.join()
  const first = machine.start(t)
  await machine.ready()
  await first.stop()
  const guarded = (): string =>
    /udp dport (\d+|\{[^}]*\}) counter name dropped-overlay-stranger/.exec(String(machine.nft))?.[1] ?? ''
  t.equal(guarded(), '4810')
  const steps: string[] = []
  const deleteLink = machine.routes.deleteLink.bind(machine.routes)
  const addLink = machine.routes.addLink.bind(machine.routes)
  machine.routes.deleteLink = async (...args) => {
    steps.push(`delete: ${guarded()}`)
    await deleteLink(...args)
  }
  machine.routes.addLink = async (...args) => {
    steps.push(`add: ${guarded()}`)
    await addLink(...args)
  }
  const second = machine.start(t, machine.api, 4811)
  await machine.ready()
  await eventually(() => guarded() === '4811', { say: 'only the new port is guarded' })
  t.strictSame(steps, ['delete: { 4810, 4811 }', 'add: { 4810, 4811 }'])
  t.match(machine.kernel(), 'dstport 4811')
  t.notMatch(machine.kernel(), '4810')
  const reported = (): number | undefined => machine.api.cache('RouteAgent').get('worker')?.status?.overlayPort
  await eventually(() => reported() === 4811, { say: 'the RouteAgent tells it' })
  await second.stop()
})
