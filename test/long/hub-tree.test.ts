/** The files that hubs keep equal: what a power loss has damaged goes to no other hub, and what counts is on the disk. */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { isDamaged } from '../../compose/hub/hub-tree.ts'
import { HubTree } from '../../compose/hub/hub-tree.ts'
import { SharedMarks } from '../../compose/hub/shared-marks.ts'
import { FileApi, RemovalMarks } from '../../kubeapi/files/files.ts'
import type { HubConnection } from '../../kubeapi/remote/hub-connection.ts'
import { HubMember, type HubMemberDeps } from '../../kubeapi/remote/hub-member.ts'
import type { StoredTerm, Version } from '../../kubeapi/remote/plan-term.ts'
import {
  MAX_OFFERS,
  type PeerAnswer,
  type PeerRequest,
  parsePeerAnswer,
  parsePeerRequest,
} from '../../kubeapi/remote/wire.ts'
import { removeMemberIdentity } from '../../protocol/membership/membership.ts'
import { type Clock, SystemClock } from '../../reconcile/clock.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { serviceImport } from '../compliance/cluster-api.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const WEB = 'state/objects/ServiceImport/shop/web.json'
const API = 'state/objects/ServiceImport/shop/api.json'
const octets = (text: string): Uint8Array => Buffer.from(text)
const web = (port: number): string => JSON.stringify(serviceImport('web', port))

const ROWS: readonly (readonly [path: string, content: string, damaged: boolean])[] = [
  [WEB, web(1), false],
  [WEB, '', true],
  [WEB, '\0\0\0\0', true],
  [WEB, web(1).slice(0, -1), true],
  [WEB, `${web(1).slice(0, 20)}\0\0\0`, true],
  [WEB, '{}', true],
  [WEB, 'null', true],
  [WEB, '"text"', true],
  [WEB, JSON.stringify({ ...serviceImport('web'), kind: 'Service' }), true],
  [WEB, JSON.stringify({ ...serviceImport('web'), spec: { ofNextRelease: true } }), false],
  ['state/objects/ServiceImport/shop/web@status.json', '{"uid":"a","status":{}}', false],
  ['state/objects/ServiceImport/shop/web@status.json', '{"status":{}}', true],
  ['state/objects/Service/shop/web@user.json', '{"uid":"a"}', false],
  ['state/objects/Service/shop/web@user.json', '{}', true],
  ['state/leases/agent/7.json', '', true],
  ['state/leases/agent/7.json', '{"kind":"Lease"}', false],
  ['state/hub/members.json', '["a:1"]', false],
  ['state/hub/members.json', '["a:1"', true],
  ['state/hub/authority.pem', '', true],
  ['state/hub/authority.pem', '-----BEGIN', false],
  ['state/identity/cluster.crt', '-----BEGIN CERTIFICATE-----\nMII', true],
  ['state/identity/cluster.key', '-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n', false],
  ['objects/web.yaml', '', false],
  ['site.yaml', '', false],
]

t.test('what is damaged', async (t) => {
  for (const [path, content, damaged] of ROWS)
    t.equal(isDamaged(path, octets(content)), damaged, `${path}: ${JSON.stringify(content.slice(0, 40))}`)
})

class Box {
  readonly folder: string
  readonly tree: HubTree
  readonly logger = new CapturingLogger()
  readonly saved: StoredTerm[] = []

  constructor(t: Test) {
    this.folder = temporaryFolder(t)
    this.tree = this.reopened()
  }

  reopened(clock: Pick<Clock, 'now' | 'monotonic'> = { now: () => 0, monotonic: () => 0 }): HubTree {
    const at = (name: string): string => join(this.folder, name)
    return new HubTree({ file: at('site.yaml'), objects: at('objects'), state: at('state') }, clock)
  }

  put(path: string, content: string): void {
    const place = join(this.folder, path)
    mkdirSync(dirname(place), { recursive: true })
    writeFileSync(place, content)
  }

  has(path: string): string {
    return readFileSync(join(this.folder, path), 'utf8')
  }

  member(
    own: string,
    hubs: readonly string[],
    stored: StoredTerm,
    deps: Partial<Pick<HubMemberDeps, 'tree' | 'connect' | 'act' | 'clock' | 'save'>> = {},
  ): HubMember {
    const save = (term: StoredTerm): Promise<void> => {
      this.saved.push(term)
      return Promise.resolve()
    }
    const never = (): never => {
      throw new Error('it does not act and asks nobody')
    }
    return new HubMember(
      {
        ...{ clock: new SystemClock(), logger: this.logger, tree: this.tree, act: never, connect: never },
        ...{ save, takePromotion: () => false, ...deps },
      },
      { hubs, own, stored },
    )
  }
}

const untilStopped = (_term: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))

function run(t: Test, member: HubMember): void {
  const stop = new AbortController()
  const ended = member.run(stop.signal)
  t.teardown(async () => {
    stop.abort()
    await ended
  })
}

t.test('a hub takes no damaged file instead of a good one, also of a release that sends them', async (t) => {
  const box = new Box(t)
  await box.tree.setMembers(['a:1', 'b:1', 'c:1'])
  box.put(WEB, web(1))
  const stored = { term: 1, version: { term: 1, index: 1 }, acts: false }
  const member = box.member('a:1', ['a:1'], stored)
  const follow = (change: Partial<PeerRequest>): Parameters<HubMember['answer']>[0] =>
    parsePeerRequest(JSON.stringify({ verb: 'follow', term: 1, hub: 'b:1', ...change }))
  const base64 = (text: string): string => Buffer.from(text).toString('base64')
  for (const [index, bad] of ['', '\0\0\0', '{"apiVersion"'].entries()) {
    const base = { term: 1, index: index + 1 }
    const version = { term: 1, index: index + 2 }
    const answer = await member.answer(follow({ files: [[WEB, base64(bad)]], base, version } as never))
    t.same(answer.version, version, 'the rest of the message counts')
    t.equal(box.has(WEB), web(1), JSON.stringify(bad))
  }
  const other = new Box(t)
  await other.tree.setMembers(['a:1', 'b:1', 'c:1'])
  other.put(WEB, '{"apiVersion"')
  const hash = (path: string): string => createHash('sha256').update(other.has(path)).digest('hex')
  const whole = [WEB, 'state/hub/members.json'].map((path) => [path, hash(path)])
  const version = { term: 1, index: 9 }
  t.match(
    await member.answer(follow({ whole, version } as never)),
    { version },
    'it asks not again for what it refused',
  )
  t.equal(box.has(WEB), web(1))
  await member.answer(follow({ files: [[WEB, base64(web(2))]] } as never))
  t.equal(box.has(WEB), web(2), 'a good one is taken')
  box.put(WEB, '')
  await member.answer(follow({ files: [[WEB, base64(web(3))]] } as never))
  t.equal(box.has(WEB), web(3), 'also instead of a damaged one')
})

t.test('an acting hub that lost power sends what is good, and the other hub keeps the rest', async (t) => {
  const [a, b] = [new Box(t), new Box(t)]
  const hubs = ['a:1', 'b:1']
  for (const { tree } of [a, b]) await tree.setMembers(hubs)
  a.put(WEB, '')
  a.put(API, JSON.stringify(serviceImport('api', 2)))
  b.put(WEB, web(1))
  b.put('state/objects/ServiceImport/shop/old.json', JSON.stringify(serviceImport('old')))
  const silent = (): HubConnection => ({ close: () => undefined }) as unknown as HubConnection
  // It has missed a removal.
  const before = { term: 1, version: { term: 1, index: 4 }, acts: false }
  const follower = b.member('b:1', hubs, before, { connect: silent })
  const askPeer = (request: PeerRequest): Promise<unknown> => follower.answer(parsePeerRequest(JSON.stringify(request)))
  const connect = (): HubConnection => ({ askPeer, close: () => undefined }) as unknown as HubConnection
  const stored = { term: 1, version: { term: 1, index: 5 }, acts: true }
  const acting = a.member('a:1', hubs, stored, { connect, act: untilStopped })
  run(t, acting)
  const paths = async (): Promise<string> =>
    (await b.tree.hashes())
      .map(([path]) => path.split('/').pop())
      .sort()
      .join(' ')
  await eventually(async () => (await paths()) === 'api.json members.json web.json', { say: 'b has all files' })
  t.equal(b.has(WEB), web(1), 'the good one stays')
  const name = { kind: 'ServiceImport', name: 'web', namespace: 'shop' } as const
  await eventually(() => acting.confirm(undefined, AbortSignal.timeout(5000)).then(() => true), { say: 'a acts' })
  a.put(WEB, '\0\0')
  await acting.confirm(name, AbortSignal.timeout(5000))
  a.put(API, JSON.stringify(serviceImport('api', 3)))
  await acting.confirm({ ...name, name: 'api' }, AbortSignal.timeout(5000))
  await eventually(() => b.has(API).includes('3'), { say: 'later changes follow' })
  t.equal(b.has(WEB), web(1), 'a change to nothing is none')
  a.put(WEB, web(7))
  await eventually(() => b.has(WEB) === web(7), { say: 'the file that was written again follows' })
})

t.test('a hub counts itself only once its own disk has the files', async (t) => {
  const box = new Box(t)
  await box.tree.setMembers(['a:1'])
  const gates: (() => void)[] = []
  let isSlow = false
  const slow = new Proxy(box.tree, {
    get: (_, name) => {
      if (name === 'sync')
        return async () => {
          await box.tree.sync()
          if (isSlow) await new Promise<void>((resolve) => gates.push(resolve))
        }
      const value: unknown = Reflect.get(box.tree, name, box.tree)
      return typeof value === 'function' ? (value as () => unknown).bind(box.tree) : value
    },
  })
  const stored = { term: 1, version: { term: 1, index: 5 }, acts: false }
  const member = box.member('a:1', ['a:1'], stored, { tree: slow, act: untilStopped })
  run(t, member)
  await eventually(() => member.confirm(undefined, AbortSignal.timeout(5000)).then(() => true), { say: 'it acts' })
  isSlow = true
  const before = box.saved.at(-1)?.version
  box.put(WEB, web(1))
  let isConfirmed = false
  const name = { kind: 'ServiceImport', name: 'web', namespace: 'shop' } as const
  const confirmed = member.confirm(name, AbortSignal.timeout(20_000)).then(() => (isConfirmed = true))
  await eventually(() => gates.length > 0, { say: 'it waits for the disk' })
  t.notOk(isConfirmed)
  t.same(box.saved.at(-1)?.version, before, 'after a power loss it would not claim the change')
  isSlow = false
  for (const open of gates) open()
  await confirmed
  t.ok((box.saved.at(-1)?.version.index ?? 0) > (before?.index ?? 0))
})

const NAME = { kind: 'ServiceImport', name: 'web', namespace: 'shop' } as const
const acts = (member: HubMember): Promise<true> =>
  eventually(() => member.confirm(undefined, AbortSignal.timeout(5000)).then(() => true), { say: 'it acts' })

interface PairInit {
  /** What a has. */
  readonly own?: Version
  readonly prepare?: (a: Box, b: Box) => void
  /** Whether b answers only that it hears a. */
  readonly isAway?: () => boolean
}

/** A site of two hubs, of which a acts; messages go through the real wire format. */
async function pair(
  t: Test,
  stored: Version = { term: 1, index: 5 },
  { own = { term: 1, index: 5 }, prepare = () => undefined, isAway = () => false }: PairInit = {},
): Promise<{ a: Box; b: Box; acting: HubMember }> {
  const [a, b] = [new Box(t), new Box(t)]
  prepare(a, b)
  const hubs = ['a:1', 'b:1']
  for (const { tree } of [a, b]) await tree.setMembers(hubs)
  for (const box of [a, b]) box.put(API, JSON.stringify(serviceImport('api')))
  b.put(WEB, web(1))
  const silent = (): HubConnection => ({ close: () => undefined }) as unknown as HubConnection
  const follower = b.member('b:1', hubs, { term: 1, version: stored, acts: false }, { connect: silent })
  const askPeer = async (request: PeerRequest): Promise<PeerAnswer> => {
    if (isAway() && request.verb === 'follow' && (request.whole ?? request.files) !== undefined) throw new Error('away')
    const answer = await follower.answer(parsePeerRequest(JSON.stringify(request)))
    return parsePeerAnswer(JSON.parse(JSON.stringify(answer)))
  }
  const connect = (): HubConnection => ({ askPeer, close: () => undefined }) as unknown as HubConnection
  const before = { term: 1, version: own, acts: true }
  let isInOffice = false
  const act = (term: number, signal: AbortSignal): Promise<void> => {
    isInOffice = true
    return untilStopped(term, signal)
  }
  const acting = a.member('a:1', hubs, before, { connect, act })
  run(t, acting)
  await eventually(() => isInOffice, { say: 'a acts' })
  return { a, b, acting }
}

t.test('what a disk has lost comes back from another hub, and what was removed does not', async (t) => {
  const { a, b, acting } = await pair(t)
  const isThere = ({ folder }: Box, path: string): boolean => existsSync(join(folder, path))
  await eventually(() => isThere(a, WEB), { say: 'what was lost before the start: b had the same version' })
  t.equal(a.has(WEB), web(1))
  a.put(WEB, web(2))
  await acting.confirm(NAME, AbortSignal.timeout(5000))
  await eventually(() => b.has(WEB) === web(2), { say: 'b has the next one' })
  for (const lose of [(place: string) => rmSync(place), (place: string) => writeFileSync(place, '\0\0')]) {
    lose(join(a.folder, WEB))
    await acting.confirm(NAME, AbortSignal.timeout(5000))
    await eventually(() => a.has(WEB) === web(2), { say: 'a has it again' })
    t.equal(b.has(WEB), web(2), 'b still has it')
  }
  rmSync(join(a.folder, 'state/objects/ServiceImport/shop'), { recursive: true })
  await eventually(() => isThere(a, API) && a.has(API).includes('api') && a.has(WEB) === web(2), { say: 'a folder' })
  const at = (name: string): string => join(a.folder, name)
  const init = { objects: at('objects'), state: at('state'), severalHubs: true }
  const api = new FileApi({ clock: new SystemClock(), logger: a.logger }, init)
  t.teardown(() => api.close())
  await api.cache('ServiceImport').whenSynced(AbortSignal.timeout(5000))
  await api.remove('ServiceImport', 'web', 'shop')
  await eventually(() => !isThere(b, WEB), { say: 'what its owner removes goes on b, too' })
  t.notOk(isThere(a, WEB))
  await api.apply(serviceImport('web', 3))
  await eventually(() => isThere(b, WEB), { say: 'it is written again' })
  rmSync(at(WEB))
  await acting.confirm(NAME, AbortSignal.timeout(5000))
  await eventually(() => isThere(a, WEB) && a.has(WEB) === b.has(WEB), { say: 'an earlier removal proves nothing' })
})

t.test('a hub that was not equal brings nothing back that was removed without it', async (t) => {
  const { a, b } = await pair(t, { term: 1, index: 4 })
  await eventually(() => !existsSync(join(b.folder, WEB)), { say: 'b follows' })
  t.notOk(existsSync(join(a.folder, WEB)))
})

t.test('hubs of the first term are not equal: a folder of an earlier site brings nothing', async (t) => {
  const none = { term: 0, index: 0 }
  const { a, b } = await pair(t, none, { own: none })
  await eventually(() => !existsSync(join(b.folder, WEB)), { say: 'b follows' })
  t.notOk(existsSync(join(a.folder, WEB)))
})

t.test('what is lost comes back also beside very many removals', async (t) => {
  const many = Array.from({ length: 2 * MAX_OFFERS }, (_, n) => `a${n}`)
  const place = (name: string): string => `state/objects/ServiceImport/shop/${name}.json`
  let isAway = true
  const prepare = (...boxes: readonly Box[]): void => {
    for (const box of boxes) for (const name of many) box.put(place(name), JSON.stringify(serviceImport(name)))
  }
  const lost = Array.from({ length: 10 }, (_, n) => `b${n}`)
  const { a, b } = await pair(t, undefined, { prepare, isAway: () => isAway })
  for (const name of lost) b.put(place(name), JSON.stringify(serviceImport(name)))
  const marks = new RemovalMarks(join(a.folder, 'state'))
  for (const name of many) {
    marks.add(place(name).replace('state/', ''))
    rmSync(join(a.folder, place(name)))
  }
  isAway = false
  await eventually(() => lost.every((name) => existsSync(join(a.folder, place(name)))), { say: 'a has them again' })
  await eventually(() => many.every((name) => !existsSync(join(b.folder, place(name)))), { say: 'the rest is gone' })
  t.ok(
    lost.every((name) => existsSync(join(b.folder, place(name)))),
    'b still has them',
  )
  t.notOk(many.some((name) => existsSync(join(a.folder, place(name)))))
})

t.test('what is lost comes back also beside very many removals that the hub had not noticed at its end', async (t) => {
  const place = (name: string): string => `state/objects/ServiceImport/shop/${name}.json`
  const many = Array.from({ length: MAX_OFFERS + 1 }, (_, n) => place(`a${n}`))
  const prepare = (a: Box, b: Box): void => {
    const marks = new RemovalMarks(join(a.folder, 'state'))
    for (const path of many) {
      marks.add(path.replace('state/', ''))
      b.put(path, web(1).replace('web', 'any'))
    }
  }
  const { a, b } = await pair(t, undefined, { prepare })
  await eventually(() => existsSync(join(a.folder, WEB)), { say: 'a has it again, after all of them in the order' })
  await eventually(() => many.every((path) => !existsSync(join(b.folder, path))), { say: 'the rest is gone' })
  t.equal(b.has(WEB), web(1), 'b still has it')
})

t.test(
  'a hub that has come to follow another one, during a look at its files, tells nobody what to have',
  async (t) => {
    const box = new Box(t)
    const hubs = ['a:1', 'b:1']
    await box.tree.setMembers(hubs)
    const [looks, goesOn] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()]
    const hashes = async (): ReturnType<HubTree['hashes']> => {
      looks.resolve(undefined)
      await goesOn.promise
      return []
    }
    const tree = new Proxy(box.tree, {
      get: (_, name) => {
        if (name === 'hashes') return hashes
        const value: unknown = Reflect.get(box.tree, name, box.tree)
        return typeof value === 'function' ? (value as () => unknown).bind(box.tree) : value
      },
    })
    const asked: PeerRequest[] = []
    const askPeer = (request: PeerRequest): Promise<PeerAnswer> => {
      asked.push(request)
      return Promise.resolve({ term: request.term, version: { term: 1, index: 4 } })
    }
    const connect = (): HubConnection => ({ askPeer, close: () => undefined }) as unknown as HubConnection
    const stored = { term: 1, version: { term: 1, index: 5 }, acts: true }
    const member = box.member('a:1', hubs, stored, { tree, connect, act: untilStopped })
    run(t, member)
    await looks.promise
    await member.answer({ verb: 'follow', term: 2, hub: 'b:1' })
    goesOn.resolve(undefined)
    await nextTurn()
    t.same([...new Set(asked.map(({ term }) => term))], [1], 'b acts in term 2')
  },
)

t.test('a pipe in place of a file of the user is no file: nothing waits for somebody who writes', async (t) => {
  const box = new Box(t)
  const path = 'objects/web.yaml'
  const place = join(box.folder, path)
  box.put(path, 'a: 1\n')
  t.same(await box.tree.changed(), [path])
  rmSync(place)
  execFileSync('mkfifo', [place])
  t.same(await box.tree.changed(), [path])
  await box.tree.sync()
  t.equal(await box.tree.read(path), undefined, 'other hubs are told that it is gone')
  await box.tree.write(path, octets('b: 2\n'))
  t.equal(box.has(path), 'b: 2\n', 'what the acting hub has comes to its place')
})

t.test('a hub tells the others of a site that has left its clusterset', async (t) => {
  const box = new Box(t)
  const { folder, tree } = box
  const paths = ['cluster.key', 'cluster.crt', 'ca.crt', 'broker.json', 'access.json'].map(
    (name) => `state/identity/${name}`,
  )
  for (const path of paths) box.put(path, '{"is":"here"}')
  await tree.changed()
  await removeMemberIdentity(join(folder, 'state', 'identity'), (name) =>
    new SharedMarks(join(folder, 'state')).add(`identity/${name}`),
  )
  const isMark = (path: string): boolean => path.startsWith('state/hub/removed/')
  t.same((await tree.changed()).filter((path) => !isMark(path)).sort(), [...paths].sort())
  for (const path of paths) t.equal(await tree.read(path), undefined)
  const hashes = await tree.hashes()
  t.equal(hashes.filter(([path]) => isMark(path)).length, 5, 'a hub that is away hears of it, too')
  t.equal(hashes.length, 5)
})

t.test('marks of removals go: with the next content, and after a day', async (t) => {
  const box = new Box(t)
  const clock = new FakeClock({ now: Date.now() })
  const [state, mark] = [join(box.folder, 'state'), WEB.replace('state/', '')]
  const marks = new RemovalMarks(state)
  const tree = box.reopened(clock)
  for (const write of [
    () => tree.write(WEB, octets(web(1))),
    () => tree.write(WEB, octets(web(2))),
    () => tree.write(WEB, undefined),
  ]) {
    marks.add(mark)
    await write()
    t.notOk(marks.has(mark), 'the acting hub has said what counts')
  }
  // It was there between two scans only.
  marks.add(mark)
  const restarted = box.reopened({ now: () => clock.now() + 3 * 86_400_000, monotonic: () => clock.monotonic() })
  await restarted.changed()
  t.notOk(await restarted.restore(WEB, octets(web(1))), 'after days without power, it still counts')
  await clock.advance(4_000_000)
  await tree.changed()
  t.ok(marks.has(mark), 'it is young')
  await clock.advance(86_400_000)
  await tree.changed()
  t.notOk(marks.has(mark))
})

t.test('a file that the disk loses between two looks is damaged, and no removal', async (t) => {
  const box = new Box(t)
  const clock = new FakeClock({ now: Date.now() })
  const tree = box.reopened(clock)
  box.put(WEB, web(1))
  await tree.changed()
  rmSync(join(box.folder, WEB))
  t.equal(await tree.read(WEB), 'damaged')
  t.strictSame(new Map(await tree.hashes()).get(WEB), undefined)
  t.ok(
    (await tree.hashes()).some(([path]) => path === WEB),
    'the other hub must not remove it',
  )
  new RemovalMarks(join(box.folder, 'state')).add(WEB.replace('state/', ''))
  t.equal(await tree.read(WEB), undefined, 'its owner has removed it')
  t.notOk((await tree.hashes()).some(([path]) => path === WEB))
  await tree.changed()
  t.equal(await tree.read(WEB), undefined)
})

t.test('a slow disk that takes one file after another is none that hangs', async (t) => {
  const box = new Box(t)
  await box.tree.setMembers(['a:1', 'b:1', 'c:1'])
  for (let n = 0; n < 3; n += 1) box.put(`objects/${n}.yaml`, '')
  await box.tree.changed()
  await box.tree.sync()
  for (let n = 0; n < 3; n += 1) box.put(`objects/${n}.yaml`, 'kind: Service')
  await box.tree.changed()
  let taken = 0
  await box.tree.sync(() => (taken += 1))
  t.ok(taken >= 3, 'the files tell of their progress')
  const clock = new FakeClock()
  const stop = new AbortController()
  let [isSlow, offices, ended] = [false, 0, 0]
  const tree = new Proxy(box.tree, {
    get: (_, name) => {
      if (name === 'sync')
        return async (onProgress?: () => void) => {
          for (let file = 0; isSlow && file < 60; file += 1) {
            await clock.sleep(1000, stop.signal)
            onProgress?.()
          }
        }
      const value: unknown = Reflect.get(box.tree, name, box.tree)
      return typeof value === 'function' ? (value as () => unknown).bind(box.tree) : value
    },
  })
  const askPeer = async (request: PeerRequest): Promise<PeerAnswer> => {
    await clock.sleep(10, stop.signal)
    const { term } = request
    if (request.verb === 'vote') return { term, version: { term: 1, index: 5 }, granted: true }
    return { term, version: request.version ?? { term, index: 99 }, missing: [] }
  }
  const connect = (): HubConnection => ({ askPeer, close: () => undefined }) as unknown as HubConnection
  const act = async (term: number, signal: AbortSignal): Promise<void> => {
    offices += 1
    await untilStopped(term, signal)
    ended += 1
  }
  const stored = { term: 1, version: { term: 1, index: 5 }, acts: false }
  const running = box.member('a:1', ['a:1', 'b:1', 'c:1'], stored, { tree, connect, act, clock }).run(stop.signal)
  const passes = (ms: number, isDone: () => boolean, say: string): Promise<true> => {
    const untilMs = clock.monotonic() + ms
    return eventually(
      async () => {
        if (clock.monotonic() < untilMs) await clock.advance(250)
        return isDone()
      },
      { say, intervalMs: 2 },
    )
  }
  await passes(30_000, () => offices === 1, 'it acts')
  isSlow = true
  box.put(WEB, web(1))
  const laterMs = clock.monotonic() + 40_000
  await passes(40_000, () => clock.monotonic() >= laterMs, 'time passes')
  t.same([offices, ended], [1, 0], 'it still acts')
  isSlow = false
  stop.abort()
  await passes(5000, () => ended === 1, 'it ends')
  await running
})

t.test('a hub that was away for very many changes compares all files instead', async (t) => {
  const box = new Box(t)
  const hubs = ['a:1', 'b:1']
  await box.tree.setMembers(hubs)
  let renewals = 0
  const tree = new Proxy(box.tree, {
    get: (_, name) => {
      // Each renewal of a Lease is a file, and an older one is gone.
      if (name === 'changed')
        return (only: unknown) =>
          Promise.resolve(
            only === undefined ? [] : Array.from({ length: 4000 }, () => `state/leases/x/${(renewals += 1)}.json`),
          )
      const value: unknown = Reflect.get(box.tree, name, box.tree)
      return typeof value === 'function' ? (value as () => unknown).bind(box.tree) : value
    },
  })
  const sent: Extract<PeerRequest, { verb: 'follow' }>[] = []
  let isAway = false
  let refused = 0
  let version: Version = { term: 1, index: 5 }
  const askPeer = async (request: PeerRequest): Promise<PeerAnswer> => {
    if (request.verb !== 'follow') throw new Error('it acts')
    const isBeat = request.files === undefined && request.whole === undefined
    if (isAway && !isBeat) {
      refused += 1
      throw new Error('away')
    }
    if (!isBeat) sent.push(request)
    version = request.version ?? version
    return { term: request.term, version, missing: [] }
  }
  const connect = (): HubConnection => ({ askPeer, close: () => undefined }) as unknown as HubConnection
  const stored = { term: 1, version, acts: true }
  const member = box.member('a:1', hubs, stored, { tree, connect, act: untilStopped })
  run(t, member)
  await acts(member)
  await eventually(() => sent.some((one) => one.version !== undefined), { say: 'the other hub has all files' })
  const changes = async (times: number): Promise<number> => {
    isAway = true
    for (let n = 0; n < times; n += 1) await member.confirm(NAME, AbortSignal.timeout(5000))
    const before = refused
    await eventually(() => refused > before, { say: 'it does not get them' })
    sent.length = 0
    isAway = false
    const last = { ...version }
    await eventually(() => version.index >= last.index + times, { say: 'it has them again' })
    return sent.flatMap(({ files = [] }) => files).length
  }
  t.equal(await changes(2), 8000, 'it gets each change')
  t.equal(await changes(3), 0, 'or, of a list without end, none')
  t.ok(sent.some(({ whole }) => whole !== undefined))
})

t.test('a disk that hangs or is full ends the office of a hub within seconds, and not its process', async (t) => {
  for (const kind of ['hangs', 'is full'] as const) {
    const box = new Box(t)
    const hubs = ['a:1', 'b:1', 'c:1']
    await box.tree.setMembers(hubs)
    const clock = new FakeClock()
    const stop = new AbortController()
    let isBad = false
    let offices = 0
    const held: (() => void)[] = []
    const save = async (term: StoredTerm): Promise<void> => {
      box.saved.push(term)
      if (!isBad) return
      if (kind === 'is full') throw Object.assign(new Error('no space left'), { code: 'ENOSPC' })
      await new Promise<void>((resolve) => held.push(resolve))
    }
    let beats = 0
    const askPeer = async (request: PeerRequest): Promise<PeerAnswer> => {
      await clock.sleep(10, stop.signal)
      const { term } = request
      if (request.verb === 'vote') return { term, version: { term: 1, index: 5 }, granted: true }
      if (request.version === undefined && request.files === undefined && request.whole === undefined) beats += 1
      return { term, version: request.version ?? { term, index: 99 }, missing: [] }
    }
    const connect = (): HubConnection => ({ askPeer, close: () => undefined }) as unknown as HubConnection
    const act = async (term: number, signal: AbortSignal): Promise<void> => {
      offices += 1
      await untilStopped(term, signal)
      offices -= 1
    }
    const stored = { term: 1, version: { term: 1, index: 5 }, acts: false }
    const member = box.member('a:1', hubs, stored, { connect, act, clock, save })
    let isOver = false
    const ended = member.run(stop.signal).finally(() => (isOver = true))
    const passes = (ms: number, isDone: () => boolean, say: string): Promise<true> => {
      const untilMs = clock.monotonic() + ms
      return eventually(
        async () => {
          if (clock.monotonic() < untilMs) await clock.advance(250)
          return isDone()
        },
        { say: `${say}: a disk that ${kind}`, intervalMs: 2 },
      )
    }
    await passes(30_000, () => offices === 1, 'it acts')
    isBad = true
    await passes(20_000, () => offices === 0, 'it leaves its office')
    const before = beats
    const laterMs = clock.monotonic() + 20_000
    await passes(20_000, () => clock.monotonic() >= laterMs, 'time passes')
    t.equal(beats, before, 'it tells nobody that it acts')
    t.equal(offices, 0)
    t.notOk(isOver, 'it goes on')
    isBad = false
    for (const open of held) open()
    await passes(30_000, () => offices === 1, 'it acts again')
    stop.abort()
    await passes(5000, () => isOver, 'it ends')
    await ended
  }
})
