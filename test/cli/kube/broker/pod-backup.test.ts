/** A restore of a broker in a pod, whose admin service is that of a broker in this process. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { ObjectRef } from '../../../../kubeapi/kube/kinds.ts'
import { restoreIntoPod } from '../../../../cli/broker/pod-backup.ts'
import { podBroker } from '../../../../cli/broker/pod-broker.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { selectorLabels } from '../../../../install/values/names.ts'
import type { BackupPart } from '../../../../protocol/admin/admin-api.ts'
import { adminSocket } from '../../../../protocol/admin/admin-socket.ts'
import { SystemClock } from '../../../../reconcile/clock.ts'
import { messageOf } from '../../../support/failure.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'
import { dialSocket, servedAdmin } from '../../../support/served-admin.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { LoopbackBroker } from '../../loopback-broker.ts'
import { runCli } from '../../run-cli.ts'
import { SiteFolder } from '../../site-folder.ts'

t.setTimeout(60_000)

const INIT = {
  flags: '--context hub',
  timeoutMs: 20_000,
  clock: new SystemClock(),
  signal: new AbortController().signal,
  say: () => undefined,
  warn: () => undefined,
}

function pod(uid: string): ManifestObject {
  const metadata = { name: 'sealane-broker-0', namespace: 'sealane-broker', uid, labels: selectorLabels('broker') }
  const status = { conditions: [{ type: 'Ready', status: 'True' }] }
  return { apiVersion: 'v1', kind: 'Pod', metadata, status }
}

/** A cluster that replaces a deleted pod and restarts its broker. */
class Hub extends MemoryAdmin {
  readonly #broker: LoopbackBroker
  #pods = 1

  constructor(broker: LoopbackBroker) {
    super([pod('uid-1')])
    this.#broker = broker
    this.dial = () => dialSocket(adminSocket(broker.state))
  }

  override async remove(ref: ObjectRef): Promise<boolean> {
    const removed = await super.remove(ref)
    await this.#broker.stop()
    await this.#broker.start()
    this.#pods += 1
    this.put(pod(`uid-${this.#pods}`))
    return removed
  }
}

async function hub(t: Test, member?: string): Promise<{ broker: LoopbackBroker; admin: Hub }> {
  const broker = await LoopbackBroker.start(t)
  if (member !== undefined) {
    const site = new SiteFolder(t, member)
    await runCli(['join', '--site', site.file, '--token', await broker.token()])
  }
  return { broker, admin: new Hub(broker) }
}

const ids = async (broker: LoopbackBroker): Promise<readonly string[]> =>
  (await broker.tokens((store) => store.members())).map(({ id }) => id)

t.test('into a pod', async (t) => {
  const first = await hub(t, 'milano')
  const file = join(temporaryFolder(t), 'backup')
  t.equal((await runCli(['broker', 'backup', '--state', first.broker.state, '--output', file])).code, 0)
  const second = await hub(t)
  await restoreIntoPod(second.admin, { ...INIT, file, force: false })
  t.strictSame(await ids(second.broker), ['milano'], 'without force, where nobody is a member')

  const third = await hub(t, 'paris')
  t.equal(
    await messageOf(restoreIntoPod(third.admin, { ...INIT, file, force: false })),
    'the broker of context "c1" of kubeconfig answered: the broker has members: paris; to replace its state anyway, use --force',
  )
  t.strictSame(await ids(third.broker), ['paris'])
  await restoreIntoPod(third.admin, { ...INIT, file, force: true })
  t.strictSame(await ids(third.broker), ['milano'])
})

t.test('a backup of a pod', async (t) => {
  const { admin } = await hub(t, 'milano')
  const parts: BackupPart[] = []
  await podBroker(admin, INIT).backup({ knownAs: 'x' }, (part) => {
    parts.push(part)
    return Promise.resolve()
  })
  const bytes = Buffer.concat(parts.flatMap((part) => ('bytes' in part ? [part.bytes] : [])))
  t.match(bytes.toString('latin1'), /^SQLite format 3/)
  t.equal(bytes.length % 4096, 0, 'whole pages')
})

t.test('no pod, a broker that refuses, and one that warns', async (t) => {
  const take = (): Promise<void> => Promise.resolve()
  const backup = (admin: MemoryAdmin) => podBroker(admin, INIT).backup({ knownAs: 'x' }, take)
  t.match(await messageOf(backup(new MemoryAdmin())), /no broker is installed/)
  const admin = new MemoryAdmin([pod('uid-1')])
  const full = await servedAdmin(t, { backup: () => Promise.reject(new Error('the disk is full')) })
  admin.dial = () => dialSocket(full)
  t.equal(await messageOf(backup(admin)), 'the broker of context "c1" of kubeconfig answered: the disk is full')
  const warned: BackupPart[] = []
  const warns = await servedAdmin(t, { backup: (_init, take) => take({ warning: 'it is done, but' }) })
  admin.dial = () => dialSocket(warns)
  await podBroker(admin, INIT).backup({ knownAs: 'x' }, (part) => {
    warned.push(part)
    return Promise.resolve()
  })
  t.strictSame(warned, [{ warning: 'it is done, but' }])
})
