/** The files that hubs keep equal: what a power loss has damaged goes to no other hub, and what counts is on the disk. */
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { isDamaged } from '../../compose/hub/hub-tree.ts'
import { HubTree } from '../../compose/hub/hub-tree.ts'
import type { HubConnection } from '../../kubeapi/remote/hub-connection.ts'
import { HubMember, type HubMemberDeps } from '../../kubeapi/remote/hub-member.ts'
import type { StoredTerm } from '../../kubeapi/remote/plan-term.ts'
import { type PeerRequest, parsePeerRequest } from '../../kubeapi/remote/wire.ts'
import { SystemClock } from '../../reconcile/clock.ts'
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

  constructor(t: Test, nowMs = 0) {
    this.folder = temporaryFolder(t)
    this.tree = this.reopened(nowMs)
  }

  reopened(nowMs = 0): HubTree {
    const at = (name: string): string => join(this.folder, name)
    return new HubTree({ file: at('site.yaml'), objects: at('objects'), state: at('state') }, nowMs)
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
    deps: Partial<Pick<HubMemberDeps, 'tree' | 'connect' | 'act'>> = {},
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
  const before = { term: 1, version: { term: 1, index: 5 }, acts: false }
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
