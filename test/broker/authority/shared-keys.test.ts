/** The keys that several replicas of one store share. */
import { readFileSync, readdirSync } from 'node:fs'
import type { KeyObject } from 'node:crypto'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type SharedKeys, knownAuthority } from '../../../broker/identity/authority-keys.ts'
import { CertificateAuthority } from '../../../broker/identity/certificate-authority.ts'
import { advance, announce, finishRotation } from '../../../broker/identity/rotation.ts'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import type { RecordLog } from '../../../broker/store/record-log.ts'
import { parseClusterId } from '../../../model/ids.ts'
import { createKey } from '../../../protocol/identity/keys.ts'
import { fingerprint } from '../../../protocol/identity/certificates.ts'
import { createCa, createCsr } from '../../../protocol/identity/x509.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { messageOf } from '../../support/failure.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const clusterset = 'demo'
const init = { clusterset, hosts: ['broker.example.org'], memberMs: 24 * 3_600_000 }

class Store implements SharedKeys {
  readonly where = 'etcd://e1:2379/demo'
  readonly kept = new Map<string, KeyObject>()
  get(certificate: Uint8Array): Promise<KeyObject | undefined> {
    return Promise.resolve(this.kept.get(fingerprint(certificate)))
  }
  put(certificate: Uint8Array, key: KeyObject): Promise<void> {
    this.kept.set(fingerprint(certificate), key)
    return Promise.resolve()
  }
  remove(authority: string): Promise<void> {
    this.kept.delete(authority)
    return Promise.resolve()
  }
}

interface World {
  readonly clock: FakeClock
  readonly log: RecordLog
  readonly shared: Store
}

function world(): World {
  return { clock: new FakeClock(), log: openMemoryLog(), shared: new Store() }
}

function open({ clock, log, shared }: World, stateDir: string): Promise<CertificateAuthority> {
  return CertificateAuthority.open({ clock, log }, { ...init, stateDir, shared })
}

async function signs(t: Test, authority: CertificateAuthority, wanted: string): Promise<void> {
  const cluster = parseClusterId('milano')
  const csr = await createCsr(createKey())
  t.equal((await authority.issue(cluster, csr)).authority, wanted)
}

t.test('three that start at once sign by one authority, and nothing is left of the others', async (t) => {
  const on = world()
  const folders = [temporaryFolder(t), temporaryFolder(t), temporaryFolder(t)]
  const replicas = await Promise.all(folders.map((folder) => open(on, folder)))
  const { pin } = replicas[0]!
  for (const replica of replicas) await signs(t, replica, pin)
  t.strictSame([...on.shared.kept.keys()], [pin])
  const files = folders.map((folder) => ['ca.crt', 'ca.key'].map((name) => readFileSync(join(folder, name), 'utf8')))
  t.strictSame(files[1], files[0])
  t.strictSame(files[2], files[0])
  for (const folder of folders)
    t.strictSame(readdirSync(folder).sort(), ['ca.crt', 'ca.key', 'server.crt', 'server.key'])
})

t.test('a second authority is there for all, and the key of the first is nowhere when it is removed', async (t) => {
  const on = world()
  const { clock, log, shared } = on
  const [first, second] = [temporaryFolder(t), temporaryFolder(t)]
  const replicas = [await open(on, first), await open(on, second)] as const
  const before = replicas[0].pin
  const key = createKey()
  const { certificate } = await createCa({ clusterset, key, nowMs: clock.now() })
  const next = knownAuthority(certificate, clock.now())
  await shared.put(certificate, key)
  await log.transact((tx) => announce(tx, next, { clusterset, nowMs: clock.now(), force: false }))
  for (const replica of replicas) await replica.prepare(next)
  await log.transact((tx) => advance(tx, 'switched', clock.now()))
  for (const replica of replicas) {
    await replica.refresh()
    await signs(t, replica, next.fingerprint)
  }

  await log.transact((tx) => finishRotation(tx, { force: false }, clock.now()))
  for (const replica of replicas) await replica.refresh()
  t.strictSame([...shared.kept.keys()], [next.fingerprint])
  const third = temporaryFolder(t)
  await signs(t, await open(on, third), next.fingerprint)
  for (const folder of [first, second, third]) {
    t.equal(readFileSync(join(folder, 'ca.key'), 'utf8'), readFileSync(join(first, 'ca.key'), 'utf8'))
    t.strictSame(readdirSync(folder).sort(), ['ca.crt', 'ca.key', 'server.crt', 'server.key'])
  }
  t.not(before, next.fingerprint)
})

t.test('a directory of another clusterset is refused, and keeps its key', async (t) => {
  const stateDir = temporaryFolder(t)
  await open(world(), stateDir)
  const key = readFileSync(join(stateDir, 'ca.key'), 'utf8')
  const on = world()
  await open(on, temporaryFolder(t))
  const file = join(stateDir, 'ca.crt')
  t.equal(
    await messageOf(open(on, stateDir)),
    `${file} is not the certificate authority of etcd://e1:2379/demo: choose an empty state directory, or another prefix`,
  )
  t.equal(readFileSync(join(stateDir, 'ca.key'), 'utf8'), key)
  t.equal(on.shared.kept.size, 1)
})

t.test('a key that is nowhere is said to be', async (t) => {
  const on = world()
  const { pin } = await open(on, temporaryFolder(t))
  on.shared.kept.clear()
  const empty = temporaryFolder(t)
  t.equal(
    await messageOf(open(on, empty)),
    `the key of authority ${pin.slice(0, 16)} of this clusterset is not in ${empty}, nor in etcd://e1:2379/demo: restore it`,
  )
})
