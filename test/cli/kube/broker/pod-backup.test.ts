/** Backup and restore of a broker in a pod: its commands run as processes here, their pipes are the exec's. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { ObjectRef } from '../../../../kubeapi/kube/kinds.ts'
import type { CommandResult, PodCommand } from '../../../../kubeapi/kube/http/pod-exec.ts'
import { timeOfBackup } from '../../../../compose/broker/backup.ts'
import { backupFromPod, restoreIntoPod } from '../../../../cli/broker/pod-backup.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { selectorLabels } from '../../../../install/values/names.ts'
import { SystemClock } from '../../../../reconcile/clock.ts'
import { messageOf } from '../../../support/failure.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'
import { ROOT } from '../../../support/source-tree.ts'
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
}

function pod(uid: string): ManifestObject {
  const metadata = { name: 'sealane-broker-0', namespace: 'sealane-broker', uid, labels: selectorLabels('broker') }
  const status = { conditions: [{ type: 'Ready', status: 'True' }] }
  return { apiVersion: 'v1', kind: 'Pod', metadata, status }
}

/** A pod that is deleted comes again, with a broker that starts anew. */
class Hub extends MemoryAdmin {
  readonly #broker: LoopbackBroker
  #pods = 1

  constructor(broker: LoopbackBroker) {
    super([pod('uid-1')])
    this.#broker = broker
    this.run = (command) => inBroker(broker, command)
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

async function inBroker({ state }: LoopbackBroker, { command, input, onStdout }: PodCommand): Promise<CommandResult> {
  const [, ...words] = command.map((word) => (word === '/var/lib/sealane/broker' ? state : word))
  const child = spawn('/usr/bin/env', ['-u', 'NODE_OPTIONS', join(ROOT, 'bin/sealane'), ...words], { stdio: 'pipe' })
  let stderr = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  child.stdout.on('data', (part: Buffer) => onStdout?.(part))
  child.stdin.on('error', () => undefined)
  // It is never closed, as in an exec by the older protocol.
  for await (const part of input ?? []) child.stdin.write(part)
  const [status] = (await once(child, 'close')) as [number | null]
  return { status: status ?? -1, stdout: '', stderr }
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

t.test('from one pod into another', async (t) => {
  const first = await hub(t, 'milano')
  const file = join(temporaryFolder(t), 'backup')
  await backupFromPod(first.admin, file, INIT)
  t.ok(timeOfBackup(file) > 0, 'it is whole')
  const second = await hub(t)
  await restoreIntoPod(second.admin, { file, force: false }, INIT)
  t.strictSame(await ids(second.broker), ['milano'], 'without force, where nobody is a member')

  const third = await hub(t, 'paris')
  t.equal(
    await messageOf(restoreIntoPod(third.admin, { file, force: false }, INIT)),
    'the broker of context "c1" of kubeconfig says: the broker there has members: paris: what it knows goes, with --force',
  )
  t.strictSame(await ids(third.broker), ['paris'])
  await restoreIntoPod(third.admin, { file, force: true }, INIT)
  t.strictSame(await ids(third.broker), ['milano'])
})

t.test('no pod, and a pod that refuses', async (t) => {
  const file = join(temporaryFolder(t), 'backup')
  t.match(await messageOf(backupFromPod(new MemoryAdmin(), file, INIT)), /no broker to ask: there is none/)
  const admin = new MemoryAdmin([pod('uid-1')])
  admin.run = () => Promise.resolve({ status: 1, stdout: '', stderr: 'sealane: the disk is full\n' })
  t.equal(
    await messageOf(backupFromPod(admin, file, INIT)),
    'the broker of context "c1" of kubeconfig says: the disk is full',
  )
})

t.test('what the command in the pod warns of is said here', async (t) => {
  const said: string[] = []
  const init = { ...INIT, say: (text: string) => void said.push(text) }
  const admin = new MemoryAdmin([pod('uid-1')])
  const stderr = 'keep it\nwarning: it is done, but\n'
  admin.run = () => Promise.resolve({ status: 0, stdout: '', stderr })
  await backupFromPod(admin, join(temporaryFolder(t), 'backup'), init)
  t.strictSame(said, ['warning: it is done, but\n'])
})
