/** A node of a real cluster that becomes a gateway, changes its lane, and stops being a gateway; on fakes. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { OWNER_SUSPECT_MS } from '../../../gateway/lanes/endpoint-writer.ts'
import { LAST_MS } from '../../../gateway/lease/hand-over.ts'
import { LABEL_GRACE_MS } from '../../../gateway/lease/labelled-gateway.ts'
import type { Node } from '../../../model/objects.ts'
import { nodeObject } from '../../support/objects/node-objects.ts'
import { PARIS, PARIS_GW, Stage } from '../support/stage.ts'

const ENDPOINT = 'milano.gw-lane0'

/** A gateway that serves lane 0, with paris in the clusterset. */
async function serving(t: Test, askNode?: (signal: AbortSignal) => Promise<Node | undefined>): Promise<Stage> {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  stage.label('0')
  stage.startLabelled(askNode)
  await stage.until(() => stage.connection('paris') !== undefined, 'lane 0 is served')
  return stage
}

function keys(stage: Stage): string[] {
  return readdirSync(stage.stateDir).sort()
}

/** Checks that the node and the API hold nothing of ours, and still hold what others own. */
function isBare(t: Test, stage: Stage): void {
  t.equal(stage.kernel(), stage.before, 'the kernel is as it was')
  t.strictSame(keys(stage), [], 'no key, no marker')
  t.equal(stage.ownEndpoint(), undefined)
  t.equal(stage.objects.get('Gateway', 'gw'), undefined)
  t.ok(stage.objects.get('Endpoint', PARIS_GW.metadata.name), 'what is not ours stays')
}

function isServing(t: Test, stage: Stage, say = 'everything stays'): void {
  t.strictSame(stage.wireguard.deviceNames(), ['sealane0'], say)
  t.strictSame(stage.nft.tableNames(), ['sealane_gateway'])
  t.not(stage.routed().length, 0)
  t.strictSame(keys(stage), ['gateway-switched-on-forwarding', 'lane0.key'])
}

t.test('what the gateway writes belongs to its Node', async (t) => {
  const stage = await serving(t)
  const owner = { apiVersion: 'v1', kind: 'Node', name: 'gw', uid: stage.node()?.metadata.uid }
  t.strictSame(stage.ownEndpoint()?.metadata.ownerReferences, [owner])
  t.strictSame(stage.objects.get('Gateway', 'gw')?.metadata.ownerReferences, [owner])

  stage.put(nodeObject('other'))
  stage.objects.drop('Node', 'gw')
  await stage.passSlowly(1000)
  await stage.objects.remove('Endpoint', ENDPOINT)
  await stage.objects.remove('Gateway', 'gw')
  await stage.passSlowly(5000)
  t.equal(stage.ownEndpoint(), undefined, 'without the Node nothing is told, whatever still runs')
  t.equal(stage.objects.get('Gateway', 'gw'), undefined)
  isServing(t, stage, 'while the process runs, a Node that is not there takes no lane down')

  stage.label('0')
  await stage.until(() => stage.ownEndpoint() !== undefined && stage.gateway() !== undefined, 'it is back')
  const again = { ...owner, uid: stage.node()?.metadata.uid }
  t.not(again.uid, owner.uid)
  t.strictSame(stage.ownEndpoint()?.metadata.ownerReferences, [again], 'and owned by the new Node')
  t.strictSame(stage.objects.get('Gateway', 'gw')?.metadata.ownerReferences, [again])
})

t.test('a late cache: what vanishes while its Node stays is written without owner, for a while', async (t) => {
  const stage = await serving(t)
  const owners = (): (string | undefined)[] =>
    [stage.ownEndpoint(), stage.objects.get('Gateway', 'gw')].map((one) =>
      one === undefined ? 'gone' : one.metadata.ownerReferences?.[0]?.uid,
    )
  const uid = stage.node()?.metadata.uid
  await stage.passSlowly(1000)
  t.strictSame(owners(), [uid, uid])
  await stage.objects.remove('Endpoint', ENDPOINT)
  await stage.objects.remove('Gateway', 'gw')
  await stage.until(() => !owners().includes('gone'), 'both are back')
  t.strictSame(owners(), [undefined, undefined], 'and the garbage collector leaves them alone')
  await stage.passSlowly(OWNER_SUSPECT_MS / 2)
  t.strictSame(owners(), [undefined, undefined])
  await stage.until(() => !owners().includes(undefined), 'owned again', 1000)
  t.strictSame(owners(), [uid, uid])

  await stage.passSlowly(1000)
  await stage.objects.remove('Endpoint', ENDPOINT)
  await stage.until(() => stage.ownEndpoint() !== undefined, 'it is back')
  t.strictSame(owners()[0], undefined)
  stage.objects.drop('Node', 'gw')
  stage.label('0')
  const again = stage.node()?.metadata.uid
  t.not(again, uid)
  await stage.until(() => owners()[0] === again, 'the new Node owns it at once')
})

t.test('a Node made anew without its label: the lane waits until it is put on again', async (t) => {
  const stage = await serving(t)
  const key = (): string => readFileSync(join(stage.stateDir, 'lane0.key'), 'utf8')
  const before = key()
  for (const way of ['made anew', 'taken off by mistake']) {
    if (way === 'made anew') stage.objects.drop('Node', 'gw')
    stage.label(undefined)
    await stage.passSlowly(LABEL_GRACE_MS - 1000)
    isServing(t, stage, way)
    stage.label('0')
    await stage.passSlowly(LABEL_GRACE_MS + 1000)
    isServing(t, stage, `${way}: it is there again`)
  }
  t.equal(key(), before)
  const from = stage.clock.monotonic()
  stage.label(undefined)
  await stage.until(() => stage.wireguard.deviceNames().length === 0, 'taken off', 100)
  const tookMs = stage.clock.monotonic() - from
  // No other gateway carries.
  const longestMs = LABEL_GRACE_MS + LAST_MS
  t.ok(tookMs >= longestMs && tookMs < longestMs + 1000, `after ${tookMs} ms`)
})

t.test('the label goes while the process runs, and comes back', async (t) => {
  const stage = await serving(t)
  stage.label(undefined)
  await stage.until(() => stage.objects.get('Gateway', 'gw') === undefined, 'cleaned')
  isBare(t, stage)
  t.match(stage.status.notReady().join(), 'gateway: Node gw is not a gateway: it has no label sealane.io/gateway')
  stage.label('0')
  await stage.until(() => stage.connection('paris') !== undefined, 'served again')
  t.strictSame(keys(stage), ['gateway-switched-on-forwarding', 'lane0.key'])
})

/** Returns the list of devices that from now on exist at any moment under a policy that does not name them. */
function unguarded(stage: Stage): readonly string[] {
  const found: string[] = []
  const run = stage.nft.run.bind(stage.nft)
  stage.nft.run = async (statements, signal) => {
    await run(statements, signal)
    found.push(...stage.wireguard.deviceNames().filter((device) => !stage.nft.toString().includes(device)))
  }
  return found
}

t.test('a lane that another node holds is not waited for without the one that this node has', async (t) => {
  const stage = await serving(t)
  const lease = { metadata: { name: 'sealane-lane-1' }, spec: { holderIdentity: 'other', leaseDurationSeconds: 3600 } }
  const renewTime = new Date(stage.clock.now()).toISOString()
  await stage.leases.write({ ...lease, spec: { ...lease.spec, renewTime } } as never, AbortSignal.timeout(5000))
  stage.label('1')
  await stage.until(
    () => stage.logger.messages('warn').some((text) => text.includes('this node keeps carrying it')),
    'it goes on',
  )
  t.ok(stage.ownEndpoint() !== undefined, 'with the lane that it has')
  await stage.until(() => stage.ownEndpoint() === undefined, 'for a minute')
})

t.test('another lane is followed without a restart', async (t) => {
  const stage = await serving(t)
  const devices = unguarded(stage)
  stage.label('1')
  await stage.until(() => stage.objects.get('Endpoint', 'milano.gw-lane1') !== undefined, 'lane 1 is told about')
  await stage.until(() => stage.ownEndpoint() === undefined, 'lane 0 is not')
  t.strictSame(stage.wireguard.deviceNames(), ['sealane0'], 'towards lane 0 of the others')
  t.strictSame(keys(stage), ['gateway-switched-on-forwarding', 'lane1.key'])
  t.strictSame(devices, [], 'no lane is ever without its policy')
  await stage.until(() => stage.gateway()?.lanes[0]?.lane === 1, 'and the status says so')

  stage.label('1', { 'sealane.io/public-address': '203.0.113.7' })
  const address = (): string | undefined =>
    stage.objects.get('Endpoint', 'milano.gw-lane1')?.spec.candidates[0]?.address
  await stage.until(() => address() === '203.0.113.7', 'its public address is followed too')
})

t.test(
  'a Node that cannot be a gateway as it is takes no lane, says why, and is one once it is corrected',
  async (t) => {
    const wrong = 'Node gw: label sealane.io/gateway "8": expected true, or the number of a lane, 0 to 7'
    const bare = 'Node gw: InternalIP fd00::1: a gateway needs an IPv4 address among its nodes'
    const rows: [say: string, label: string, address: string, reason: string, why: string][] = [
      ['lane 8', '8', '192.0.2.10', 'InvalidValue', wrong],
      ['without IPv4', '0', 'fd00::1', 'GatewayWithoutIPv4', bare],
    ]
    for (const [say, label, address, reason, why] of rows) {
      const stage = new Stage(t)
      stage.put(PARIS, PARIS_GW)
      stage.label(label, {}, address)
      stage.startLabelled()
      await stage.passSlowly(20_000)
      t.equal(stage.kernel(), stage.before, `${say}: nothing is made`)
      t.equal(stage.leases.get('sealane-lane-0'), undefined, 'and no lane is taken')
      t.strictSame(stage.status.notReady(), [`gateway: ${why}`])
      t.strictSame(
        stage.objects.events.map((event) => [event.regarding.name, event.type, event.reason, event.note]),
        [['gw', 'Warning', reason, `${why}; until then it takes no lane`]],
      )
      stage.label('0', {}, '192.0.2.10')
      await stage.until(() => stage.connection('paris') !== undefined, 'served')
      isServing(t, stage, 'corrected')

      stage.label(label, {}, address)
      await stage.passSlowly(LABEL_GRACE_MS + 5000)
      isServing(t, stage, `${say}: who serves goes on`)
      t.match(stage.objects.events.at(-1), { reason, note: `${why}; until then it keeps its current role` })
      await stage.stop()
      const kernel = stage.kernel()
      stage.startLabelled()
      await stage.passSlowly(10_000)
      t.equal(stage.kernel(), kernel, 'a process that starts anew then leaves what carries')
      await stage.stop()
    }
  },
)

t.test('a label that cannot be used takes no lane down', async (t) => {
  const stage = await serving(t)
  stage.label('first')
  await stage.passSlowly(2000)
  isServing(t, stage)
  t.match(
    stage.logger.lines.filter(({ level }) => level === 'error').map(({ fields }) => fields['why']),
    ['Node gw: label sealane.io/gateway "first": expected true, or the number of a lane, 0 to 7'],
  )
  await stage.stop()
  isServing(t, stage, 'also when the process stops')
})

t.test('stopping leaves the data path, unless the API says that this node is no gateway', async (t) => {
  const noLabel = nodeObject('gw')
  const rows: [say: string, askNode: () => Promise<Node | undefined>, stays: boolean][] = [
    ['the label is there', () => Promise.resolve(labelled('0')), true],
    ['another lane: the next process sees to it', () => Promise.resolve(labelled('1')), true],
    ['a label that cannot be used', () => Promise.resolve(labelled('x')), true],
    ['no answer', () => Promise.reject(new Error('connection refused')), true],
    ['no label, and no watch had told', () => Promise.resolve(noLabel), false],
    ['no such Node', () => Promise.resolve(undefined), false],
  ]
  for (const [say, askNode, stays] of rows) {
    await t.test(say, async (t) => {
      const stage = await serving(t, askNode)
      let ended = false
      const end = stage.stop().then(() => (ended = true))
      await stage.until(() => ended, 'ended', 100)
      await end
      if (!stays) isBare(t, stage)
      else isServing(t, stage)
      t.equal(stage.ownEndpoint() !== undefined, stays)
      t.equal(stage.gateway() !== undefined, stays)
    })
  }
})

t.test('an API that does not answer holds the end up for 3 s, not longer', async (t) => {
  const stage = await serving(t, stalled)
  let ended = false
  const end = stage.stop().then(() => (ended = true))
  await stage.pass(2900)
  t.equal(ended, false)
  await stage.until(() => ended, 'ended')
  await end
  isServing(t, stage)
  t.match(stage.logger.lines.at(-1)?.fields['why'], 'no answer within 3 s')
})

t.test('a kernel that cannot be cleaned holds it up for 5 s, not longer', async (t) => {
  const stage = await serving(t, () => Promise.resolve(undefined))
  stage.nft.tables = () => Promise.reject(new Error('nft is busy'))
  let ended = false
  const end = stage.stop().then(() => (ended = true))
  const cleans = (): boolean =>
    stage.logger.lines.some(({ message }) => message.startsWith('this node is no longer a gateway; removing'))
  await stage.until(cleans, 'it cleans, after nobody else carried', 100)
  const from = stage.clock.monotonic()
  await stage.pass(4500)
  t.equal(ended, false)
  await stage.until(() => ended, 'ended')
  await end
  const tookMs = stage.clock.monotonic() - from
  // The step began up to 100 ms before `from`.
  t.ok(tookMs >= 4900 && tookMs < 6000, `after ${tookMs} ms`)
  t.equal(stage.logger.lines.at(-1)?.message.startsWith('not everything could be removed in time'), true)
})

t.test('started on a node without label: it cleans up what a killed process left, and waits', async (t) => {
  const stage = await serving(t, () => Promise.reject(new Error('killed, so to speak')))
  await stage.stop()
  t.not(stage.kernel(), stage.before, 'it left everything')
  stage.label(undefined)
  stage.startLabelled()
  await stage.until(() => stage.objects.get('Gateway', 'gw') === undefined, 'cleaned')
  isBare(t, stage)
  await stage.pass(60_000)
  await stage.stop()
  isBare(t, stage)
})

t.test('started with another lane: the old one goes', async (t) => {
  const stage = await serving(t)
  await stage.stop()
  stage.label('1')
  stage.startLabelled()
  await stage.until(() => stage.objects.get('Endpoint', 'milano.gw-lane1') !== undefined, 'lane 1')
  await stage.until(() => stage.ownEndpoint() === undefined, 'lane 0 is gone')
  t.strictSame(stage.wireguard.deviceNames(), ['sealane0'], 'towards lane 0 of the others')
  t.strictSame(keys(stage), ['gateway-switched-on-forwarding', 'lane1.key'])
})

function labelled(lane: string): Node {
  return nodeObject('gw', { metadata: { labels: { 'sealane.io/gateway': lane } } })
}

function stalled(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)))
}
