/** A gateway rotates its key, and follows another gateway that does; everything but its own process is a fake. */
import { existsSync, utimesSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { identityMark } from '../../gateway/rotation/peer-rotation.ts'
import { decodeNotice, encodeNotice, type NoticeStep } from '../../kernel/probing/probe-packet.ts'
import type { Endpoint, Node } from '../../model/objects.ts'
import { HOME, PARIS, PARIS_GW, Stage } from './support/stage.ts'
import { endpoint, key } from './support/worlds.ts'

const OWN_LANE = '246.0.1.0'
const PARIS_LANE = '246.0.2.0'
const ALL: readonly NoticeStep[] = ['known', 'soon']
const FOLLOWS: Endpoint = with_(PARIS_GW, { capabilities: ['wireguard', 'follows-keys', 'all-pairs'] })

function with_(one: Endpoint, change: Partial<Endpoint['spec']>): Endpoint {
  return { ...one, spec: { ...one.spec, ...change } }
}

async function connected(t: Test, paris: Endpoint = FOLLOWS, keyMaxAgeMs = 0): Promise<Stage> {
  const stage = new Stage(t)
  stage.put(PARIS, paris)
  stage.probes.alive.add(PARIS_LANE)
  stage.start({ keyMaxAgeMs })
  await stage.until(() => stage.connection('paris')?.state === 'up', 'paris is up')
  return stage
}

function ask(stage: Stage, request: string): void {
  const { metadata, ...rest } = stage.node() as Node
  stage.put({ ...rest, metadata: { ...metadata, annotations: { 'sealane.io/rotate-keys': request } } })
}

const keyOf = (stage: Stage): string | undefined => stage.ownEndpoint()?.spec.publicKey
const nextOf = (stage: Stage): string | undefined => stage.ownEndpoint()?.spec.nextPublicKey
const rotated = (stage: Stage) => stage.gateway()?.conditions?.find(({ type }) => type === 'KeysRotated')
const nextFile = (stage: Stage): boolean => existsSync(join(stage.stateDir, 'lane0.next.key'))

t.test('asked for: announced, known, switched; once for each request', async (t) => {
  const stage = await connected(t)
  stage.probes.receipts.set(PARIS_LANE, ALL)
  const before = keyOf(stage)
  ask(stage, 'first')
  await stage.until(() => nextOf(stage) !== undefined, 'it announces')
  const next = nextOf(stage)
  t.equal(keyOf(stage), before, 'beside the present one')
  await stage.until(() => keyOf(stage) === next && nextOf(stage) === undefined, 'it has the new key')
  t.equal((await stage.wireguard.read('sealane0'))?.publicKey, next)
  t.equal(nextFile(stage), false)
  await stage.until(() => rotated(stage)?.status === 'True', 'and says so')
  t.equal(stage.connection('paris')?.state, 'up')
  await stage.passSlowly(5000)
  t.equal(keyOf(stage), next, 'no second time')
  ask(stage, 'second')
  await stage.until(() => keyOf(stage) !== next && nextOf(stage) === undefined, 'for another request')
})

t.test('a far end that does not learn the next key is not left behind', async (t) => {
  const stage = await connected(t)
  const before = keyOf(stage)
  ask(stage, 'now')
  await stage.until(() => rotated(stage)?.reason === 'KeyAnnounced', 'it waits')
  await stage.until(() => rotated(stage)?.reason === 'FarEndsWithoutKey', 'it is postponed', 100)
  t.match(rotated(stage)?.message, /paris/)
  await stage.until(() => nextOf(stage) === undefined, 'and no longer announced')
  t.equal(keyOf(stage), before)
  t.equal(nextFile(stage), true, 'the next key is kept')
  stage.probes.receipts.set(PARIS_LANE, ALL)
  await stage.until(() => keyOf(stage) !== before, 'some minutes later it is tried again', 500)
})

t.test('a far end of the last release is not waited for', async (t) => {
  const stage = await connected(t, PARIS_GW)
  const before = keyOf(stage)
  ask(stage, 'now')
  await stage.until(() => keyOf(stage) !== before, 'the key is a new one')
})

t.test('not while a far end is not ready: it may change itself', async (t) => {
  const stage = await connected(t)
  stage.probes.receipts.set(PARIS_LANE, ['known'])
  const before = keyOf(stage)
  ask(stage, 'now')
  await stage.until(() => nextOf(stage) !== undefined, 'it announces')
  await stage.passSlowly(10_000)
  t.equal(keyOf(stage), before)
  stage.probes.receipts.set(PARIS_LANE, ALL)
  await stage.until(() => keyOf(stage) !== before, 'the key is a new one')
})

t.test(
  'a far end that is never ready, or changes itself for ever, holds it up for minutes and not for ever',
  async (t) => {
    for (const [say, disturb] of [
      ['never ready', () => undefined],
      ['says all the time that it changes itself', (stage: Stage) => says(stage, 'soon')],
    ] as const) {
      const stage = await connected(t)
      stage.put(with_(FOLLOWS, { nextPublicKey: NEXT }))
      stage.probes.receipts.set(PARIS_LANE, ['known'])
      const before = keyOf(stage)
      ask(stage, 'now')
      await stage.until(() => nextOf(stage) !== undefined, `${say}: it announces`)
      for (let second = 0; second < 60; second += 1) {
        disturb(stage)
        await stage.passSlowly(1000)
      }
      t.equal(keyOf(stage), before, `${say}: it waits`)
      let seconds = 60
      for (; keyOf(stage) === before && seconds < 600; seconds += 1) {
        disturb(stage)
        await stage.passSlowly(1000)
      }
      t.ok(seconds < 400, `${say}: the key is a new one after ${seconds} s`)
    }
  },
)

t.test('by age; and what an earlier run has begun goes on', async (t) => {
  const stage = await connected(t, FOLLOWS, 60_000)
  const file = join(stage.stateDir, 'lane0.key')
  const atMs = (ms: number): void => utimesSync(file, new Date(ms), new Date(ms))
  atMs(stage.clock.now())
  await stage.passSlowly(5000)
  t.equal(nextOf(stage), undefined, 'young')
  atMs(stage.clock.now() - 60_000)
  const before = keyOf(stage)
  await stage.until(() => nextOf(stage) !== undefined, 'it announces')
  const next = nextOf(stage)
  await stage.stop()
  stage.probes.receipts.set(PARIS_LANE, ALL)
  stage.start({ keyMaxAgeMs: 0 })
  await stage.until(() => keyOf(stage) === next, 'the key that was announced')
  t.not(keyOf(stage), before)
})

t.test('another gateway of the cluster goes first', async (t) => {
  const stage = await connected(t)
  stage.probes.receipts.set(PARIS_LANE, ALL)
  const before = keyOf(stage)
  const other = endpoint('milano', 'gw2', 1, [], key('other'))
  stage.put(with_(other, { nextPublicKey: key('other next') }))
  ask(stage, 'now')
  await stage.until(() => rotated(stage)?.reason === 'OtherGatewayRotates', 'it waits')
  await stage.passSlowly(3000)
  t.equal(keyOf(stage), before)
  stage.put(with_(other, { publicKey: key('other next') }))
  await stage.until(() => keyOf(stage) !== before, 'then it is its turn')
})

const NEXT = key('paris next')
const says = (stage: Stage, step: NoticeStep, next = NEXT, from = PARIS_LANE): void =>
  stage.probes.receive(OWN_LANE, from, encodeNotice({ type: 'notice', lane: 0, mark: identityMark(next), step }))

async function peersOf(stage: Stage): Promise<string[]> {
  const peers = (await stage.wireguard.read('sealane0'))?.peers ?? []
  return peers.filter(({ allowedIps }) => allowedIps.length > 0).map(({ publicKey }) => publicKey)
}

t.test('a far end that takes the key it has announced is followed at once, and its link stays up', async (t) => {
  const stage = await connected(t)
  stage.wireguard.handshake('sealane0', FOLLOWS.spec.publicKey, stage.clock.now(), HOME)
  stage.put(with_(FOLLOWS, { nextPublicKey: NEXT }))
  await stage.passSlowly(500)
  const receipts = (): number => stage.probes.sent.filter(({ bytes }) => decodeNotice(bytes)?.type === 'receipt').length
  says(stage, 'known', key('something else'))
  says(stage, 'known', NEXT, '246.0.9.9')
  t.equal(receipts(), 0, 'of what it does not know, and of whom')
  says(stage, 'known')
  says(stage, 'soon')
  t.equal(receipts(), 2)
  t.strictSame(await peersOf(stage), [FOLLOWS.spec.publicKey], 'not yet')
  for (let i = 0; i < 3; i += 1) says(stage, 'now')
  let now: string[] = []
  await stage.until(
    () => {
      void peersOf(stage).then((peers) => (now = peers))
      return now[0] === NEXT
    },
    'it is followed',
    10,
  )
  t.match((await stage.wireguard.read('sealane0'))?.peers.find(({ publicKey }) => publicKey === NEXT)?.endpoint, HOME)
  await stage.passSlowly(3000)
  t.strictSame(await peersOf(stage), [NEXT], 'rounds leave it so')
  t.equal(stage.connection('paris')?.state, 'up')
  t.equal(
    stage.logger.lines.filter(({ message }) => message === 'connection changed').length,
    1,
    'only when it came up',
  )
  await stage.stop()
  stage.start({ keyMaxAgeMs: 0 })
  await stage.passSlowly(3000)
  t.strictSame(await peersOf(stage), [NEXT], 'after a restart too')
  stage.put(with_(FOLLOWS, { publicKey: NEXT }))
  await stage.passSlowly(1000)
  t.strictSame(await peersOf(stage), [NEXT], 'and when it is its present one')
})

t.test('a far end that was not heard is called under both keys', async (t) => {
  const stage = await connected(t)
  stage.put(with_(FOLLOWS, { nextPublicKey: NEXT }))
  await stage.passSlowly(500)
  stage.probes.alive.delete(PARIS_LANE)
  let all: string[] = []
  await stage.until(() => {
    void stage.wireguard.read('sealane0').then((device) => (all = device?.peers.map((one) => one.publicKey) ?? []))
    return all.includes(NEXT)
  }, 'the next one is called')
  t.strictSame(await peersOf(stage), [FOLLOWS.spec.publicKey], 'the present one carries')
  stage.wireguard.handshake('sealane0', NEXT, stage.clock.now())
  await stage.passSlowly(1000)
  t.strictSame(await peersOf(stage), [NEXT], 'the one that has shaken hands takes over')
})

t.test('two far gateways: both are told', async (t) => {
  const stage = await connected(t)
  const second = endpoint('paris', 'gw1', 1, ['public 198.51.100.21:4501'], key('paris second'))
  stage.put(with_(second, { capabilities: FOLLOWS.spec.capabilities }))
  stage.probes.alive.add('246.0.2.1')
  const up = (): number => stage.gateway()?.connections.filter(({ state }) => state === 'up').length ?? 0
  await stage.until(() => up() === 2, 'both links are up')
  const before = keyOf(stage)
  stage.probes.receipts.set(PARIS_LANE, ALL)
  ask(stage, 'now')
  await stage.passSlowly(10_000)
  t.equal(keyOf(stage), before, 'one of them does not know it')
  stage.probes.receipts.set('246.0.2.1', ALL)
  await stage.until(() => keyOf(stage) !== before, 'the key is a new one')
  for (const name of ['sealane0', 'sealane1'])
    t.equal((await stage.wireguard.read(name))?.publicKey, keyOf(stage), name)
})
