/** The gateways of a real cluster replace their keys, as the command observes it. */
import t from 'tap'
import { rotateKeys } from '../../../cli/cluster/rotate-keys.ts'
import type { ManifestObject } from '../../../install/values/manifest.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { MemoryAdmin } from '../../support/memory-admin.ts'

const GROUP = 'sealane.io/v1alpha1'
const LABELS = { 'sealane.io/gateway': 'true' }

const node = (name: string, labels: Readonly<Record<string, string>> = LABELS) =>
  ({ apiVersion: 'v1', kind: 'Node', metadata: { name, labels } }) as ManifestObject

function gateway(name: string, waits?: string): ManifestObject {
  const found = { type: 'KeysRotated', status: 'False', reason: 'FarEndsWithoutKey', message: waits ?? '' }
  const conditions = waits === undefined ? [] : [found]
  return { apiVersion: GROUP, kind: 'Gateway', metadata: { name }, status: { lanes: [{ lane: 0 }], conditions } }
}

function endpoint(cluster: string, name: string, publicKey: string, nextPublicKey?: string): ManifestObject {
  const next = nextPublicKey === undefined ? {} : { nextPublicKey }
  const spec = { cluster, node: name, lane: 0, publicKey, ...next, candidates: [], capabilities: [] }
  return { apiVersion: GROUP, kind: 'Endpoint', metadata: { name: `${cluster}.${name}-lane0` }, spec }
}

const MEMBERSHIP: ManifestObject = {
  apiVersion: GROUP,
  kind: 'Membership',
  metadata: { name: 'self' },
  spec: { clusterId: 'milano' },
}
/** An Endpoint of another cluster, whose node has the same name. */
const FOREIGN = endpoint('paris', 'a', 'foreign')
const TWO = [
  MEMBERSHIP,
  FOREIGN,
  ...['a', 'b'].flatMap((name) => [node(name), gateway(name), endpoint('milano', name, `old ${name}`)]),
]

async function rotate(
  objects: readonly ManifestObject[],
  name: string | undefined,
  later: (admin: MemoryAdmin) => void = () => undefined,
) {
  const admin = new MemoryAdmin(objects)
  const clock = new FakeClock()
  let said = ''
  const { signal } = new AbortController()
  const say = (text: string): void => void (said += text)
  let outcome: string | Error | undefined
  const ends = rotateKeys(admin, name, { timeoutMs: 10_000, clock, signal, say }).then(
    (text) => (outcome = text),
    (error: unknown) => (outcome = error as Error),
  )
  for (let i = 0; i < 60 && outcome === undefined; i += 1) {
    await clock.advance(250)
    if (i === 4) later(admin)
  }
  await ends
  const asked = async (of: string): Promise<string | undefined> =>
    (await admin.get({ apiVersion: 'v1', kind: 'Node', name: of }))?.metadata.annotations?.['sealane.io/rotate-keys']
  return { asked, outcome: outcome instanceof Error ? outcome.message : outcome, said }
}

t.test('one gateway', async (t) => {
  const seen = await rotate(TWO, 'a', (admin) => admin.put(endpoint('milano', 'a', 'new')))
  t.equal(seen.outcome, 'a: keys rotated')
  t.match(await seen.asked('a'), /^\d{4}-\d\d-\d\dT/)
  t.equal(await seen.asked('b'), undefined)
  t.match(seen.said, /^ {2}changed {3}Node a {2}\(sealane\.io\/rotate-keys=\d{4}-/)
})

t.test('all gateways', async (t) => {
  const seen = await rotate(TWO, undefined, (admin) => {
    for (const name of ['a', 'b']) admin.put(endpoint('milano', name, `new ${name}`))
  })
  t.equal(seen.outcome, 'a, b: keys rotated')
  t.ok((await seen.asked('a')) !== undefined && (await seen.asked('b')) !== undefined)
})

t.test('what it waits for', async (t) => {
  const rows: [say: string, later: (admin: MemoryAdmin) => void, message: RegExp][] = [
    ['nothing happens', () => undefined, /new keys of a/],
    ['the next key is still announced', (admin) => admin.put(endpoint('milano', 'a', 'old a', 'new')), /new keys of a/],
    ['another cluster has a new key', (admin) => admin.put(endpoint('paris', 'a', 'new')), /new keys of a/],
    [
      'the gateway says why',
      (admin) => admin.put(gateway('a', 'clusters that do not have the next key yet: paris')),
      /a: FarEndsWithoutKey: clusters that do not have the next key yet: paris/,
    ],
  ]
  for (const [say, later, message] of rows) t.match((await rotate(TWO, 'a', later)).outcome, message, say)
})

t.test('what is refused, and leaves the Nodes as they are', async (t) => {
  const rows: [say: string, objects: readonly ManifestObject[], name: string | undefined, message: RegExp][] = [
    ['no such Node', TWO, 'z', /^Node z: this cluster has no such Node$/],
    ['no gateway', [...TWO, node('w', {})], 'w', /^Node w is not a gateway: it has no label/],
    ['it stands by', [...TWO, node('s')], 's', /^Node s serves no lane now/],
    ['there is none', [MEMBERSHIP], undefined, /^this cluster has no active gateway$/],
  ]
  for (const [say, objects, name, message] of rows) {
    const { outcome, said } = await rotate(objects, name)
    t.match(outcome, message, say)
    t.equal(said, '', say)
  }
})
