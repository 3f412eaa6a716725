/**
 * The state of a broker moves: from its volume to an etcd of another owner, which first does not let it in; the key of
 * its authority to a Secret; and all back to its volume. The members keep working throughout.
 */
import { execFileSync } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { etcdSecrets } from '../../../cli/broker/deploy/etcd-secrets.ts'
import { etcdHosts } from '../../../install/values/names.ts'
import type { ManifestObject } from '../../../install/values/manifest.ts'
import { planEtcd } from '../../../install/plan-etcd.ts'
import { REPLICAS_VALUES } from '../../../scripts/manifest-files.ts'
import { eventually } from '../../support/eventually.ts'
import { MemoryAdmin } from '../../support/memory-admin.ts'
import type { KubeObject } from '../support/kube-request.ts'
import { pathOf } from '../support/object-path.ts'
import { lastWords } from '../support/pod-logs.ts'
import { sealane, trySealane } from '../support/sealane-command.ts'
import { ETCD_IMAGE, type TestCluster } from '../support/two-clusters.ts'

const THEIRS = 'platform'
const BROKER = '/api/v1/namespaces/sealane-broker'
const SECRETS = `${BROKER}/secrets`

export interface MoveWorld {
  /** The cluster with the broker, which has its state on a volume. */
  readonly hub: TestCluster
  /** The members in contact, as `cluster list` shows them. */
  readonly members: readonly string[]
  readonly directory: string
}

interface World extends MoveWorld {
  readonly at: readonly string[]
}

/** Begins and ends with one broker on its volume; the etcd and the Secrets for it stay. */
export async function moveStories(t: Test, given: MoveWorld): Promise<void> {
  const { hub } = given
  const world: World = { ...given, at: ['--kubeconfig', hub.plane.kubeconfig] }
  const stage = async (name: string, work: (t: Test, world: World) => Promise<void>): Promise<void> => {
    await t.test(name, async (t) => {
      await work(t, world).catch(async (error: unknown) => {
        throw new Error(`${String(error)}\n${await lastWords(hub.plane.api, 'sealane-broker', 30)}`, { cause: error })
      })
    })
  }
  await stage('one broker, with its members', begun)
  await stage('an etcd that does not let it in', refused)
  await stage('to that etcd', moved)
  await stage('the key of the authority moves into a Secret', kept)
  await stage('to the volume again; a Secret of another etcd is nobody else’s', around)
}

async function begun(t: Test, { at, hub, members }: World): Promise<void> {
  const inContact = new RegExp(`^members +${members.length}, in contact ${members.length};`, 'm')
  // The API server of one of them has only just returned.
  const all = async (): Promise<boolean> => inContact.test((await sealane(['broker', 'status', ...at])).stdout)
  await eventually(all, { deadlineMs: 60_000, intervalMs: 1000, say: 'all members are in contact' })
  t.match((await sealane(['broker', 'status', ...at])).stdout, /^broker +healthy\n/)
  await platformEtcd(hub)
}

/** Three members of etcd in a namespace of their own, which the broker does not own. */
async function platformEtcd({ plane }: TestCluster): Promise<void> {
  const values = { ...REPLICAS_VALUES.etcd, image: ETCD_IMAGE, storage: { size: '1Gi', storageClassName: '' } }
  const broker = { ...REPLICAS_VALUES.broker, namespace: THEIRS }
  const { objects } = planEtcd({ ...REPLICAS_VALUES, broker, etcd: values })
  const { signal } = new AbortController()
  const secrets = await etcdSecrets(new MemoryAdmin(), { namespace: THEIRS, nowMs: Date.now() }, signal)
  const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: THEIRS } }
  for (const object of [namespace, ...secrets, ...objects] as readonly (KubeObject & ManifestObject)[])
    await plane.api.apply(pathOf(object), object)
}

const STORE = ['--replicas', '2', '--etcd-endpoints', etcdHosts(THEIRS).join(',')]

/** A Secret with a certificate of this authority; that of `nobody` is one that the etcd does not trust. */
async function loginSecret(hub: TestCluster, from: 'theirs' | 'nobody'): Promise<void> {
  const { signal } = new AbortController()
  const name = 'sealane-etcd-client'
  const others = await etcdSecrets(new MemoryAdmin(), { namespace: THEIRS, nowMs: Date.now() }, signal)
  const real = await hub.plane.api.get<KubeObject & { readonly data: Readonly<Record<string, string>> }>(
    `/api/v1/namespaces/${THEIRS}/secrets/${name}`,
  )
  const other = others.find(({ metadata }) => metadata.name === name)?.['data'] as Readonly<Record<string, string>>
  const data = from === 'theirs' ? real.data : { ...other, 'ca.crt': real.data['ca.crt'] }
  const metadata = { name, namespace: 'sealane-broker' }
  await hub.plane.api.apply(`${SECRETS}/${name}`, { apiVersion: 'v1', kind: 'Secret', metadata, data })
}

async function refused(t: Test, { hub, at }: World): Promise<void> {
  const plain = await trySealane(['broker', 'deploy', ...STORE, ...at])
  t.equal(plain.code, 1)
  t.match(
    plain.stderr,
    /which would start with an empty state\n.*run the same command with --move\nnothing was changed\n$/,
  )
  const without = await trySealane(['broker', 'deploy', ...STORE, '--move', ...at])
  t.match(without.stderr, /Secret sealane-broker\/sealane-etcd-client.*: it does not exist\n/)
  await loginSecret(hub, 'nobody')
  const wrong = await trySealane(['broker', 'deploy', ...STORE, '--move', ...at])
  t.equal(wrong.code, 1)
  t.match(wrong.stderr, /the state was not moved: .*etcd at sealane-etcd-\d\.sealane-etcd\.platform\.svc:2379: /)
  t.comment(wrong.stderr)
  const old = await hub.plane.api.find(`/apis/apps/v1/namespaces/sealane-broker/statefulsets/sealane-broker`)
  t.ok(old, 'what was there before is there')
  await sealane(['broker', 'deploy', ...at])
  t.match((await sealane(['broker', 'status', ...at])).stdout, /^broker +healthy\n/, 'and goes on as before')
}

/** Waits until the members are known by their ids and in contact again. */
async function inContact({ at, members }: World): Promise<void> {
  await eventually(
    async () => {
      const { stdout } = await sealane(['cluster', 'list', '-o', 'json', ...at])
      const { items } = JSON.parse(stdout) as { items: { id: string; state: string }[] }
      const text = items.map(({ id, state }) => `${id} ${state}`).join()
      if (text === members.map((id) => `${id} in contact`).join()) return true
      throw new Error(text)
    },
    { deadlineMs: 90_000, intervalMs: 2500, say: 'the members are in contact' },
  )
}

async function moved(t: Test, world: World): Promise<void> {
  const { hub, at } = world
  await loginSecret(hub, 'theirs')
  const done = await sealane(['broker', 'deploy', ...STORE, '--move', ...at])
  t.match(
    done.stderr,
    / stopped +StatefulSet [^]* moving +the state[^]* removed +StatefulSet sealane-broker\/sealane-b/,
  )
  await inContact(world)
  const { code, stdout, stderr } = await trySealane(['broker', 'status', ...at])
  t.equal(code, 0, stderr)
  t.match(stdout, /\nstore +etcd etcd:\/\/sealane-etcd-0\.sealane-etcd\.platform\.svc:2379,/)
  const other = await trySealane(['broker', 'deploy', '--etcd-prefix', '/other', ...at])
  t.match(other.stderr, /asks for another store: .*\/other instead of /)
  const left = await trySealane(['uninstall', ...at])
  t.match(left.stderr, /kept: the broker's data in etcd:\/\/.*; give that etcd to the next sealane broker deploy too\n/)
  t.match(left.stderr, /first take a snapshot of its etcd/)
}

/** The commands of docs/operations.md. */
const OPENSSL = [
  ['ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', 'next.key'],
  [
    ...['req', '-x509', '-new', '-key', 'next.key', '-sha256', '-days', '3650', '-subj', '/CN=Sealane CA default'],
    ...['-addext', 'keyUsage=critical,keyCertSign,cRLSign', '-addext', 'subjectAltName=URI:sealane://default'],
    ...['-addext', 'basicConstraints=critical,CA:TRUE,pathlen:0', '-out', 'next.crt', '-config', 'openssl.cnf'],
  ],
] as const

async function kept(t: Test, world: World): Promise<void> {
  const { hub, at, directory } = world
  // The machine's own openssl.cnf may add an extension a second time, so the test uses its own.
  writeFileSync(join(directory, 'openssl.cnf'), '[req]\ndistinguished_name = dn\n[dn]\n')
  for (const words of OPENSSL) execFileSync('openssl', words, { cwd: directory, stdio: 'pipe' })
  const file = (name: string): string => readFileSync(join(directory, name), 'base64')
  const name = 'sealane-broker-authority'
  const secret = { apiVersion: 'v1', kind: 'Secret', metadata: { name, namespace: 'sealane-broker' } }
  const data = { 'next.crt': file('next.crt'), 'next.key': file('next.key') }
  await hub.plane.api.apply(`${SECRETS}/${name}`, { ...secret, data })
  const tokens = JSON.parse((await sealane(['token', 'list', '-o', 'json', ...at])).stdout) as {
    readonly items: readonly { readonly id: string; readonly state: string }[]
  }
  for (const { id, state } of tokens.items) if (state === 'valid') await sealane(['token', 'revoke', id, ...at])
  await untilDone(['rotate', '--certificate', '/etc/sealane/authority/next.crt'], world)
  await untilDone(['finish'], world)
  const { stdout } = await sealane(['broker', 'ca', 'status', '-o', 'json', ...at])
  const status = JSON.parse(stdout) as { readonly phase: string; readonly current: { readonly fingerprint: string } }
  const made = new X509Certificate(readFileSync(join(directory, 'next.crt')))
  t.equal(status.phase, 'steady')
  t.equal(status.current.fingerprint.toLowerCase(), made.fingerprint256.replaceAll(':', '').toLowerCase())
  await inContact(world)
  const again = await sealane(['broker', 'deploy', ...STORE, ...at])
  t.notMatch(again.stderr, /Secret sealane-broker\/sealane-broker-authority/, 'a deploy leaves the Secret alone')
}

/** Each replica sees the Secret once its kubelet has updated the volume, and members follow later. */
async function untilDone(words: readonly string[], { at }: World): Promise<void> {
  const isDone = async (): Promise<true> => {
    const { code, stderr } = await trySealane(['broker', 'ca', ...words, ...at])
    if (code === 0) return true
    throw new Error(stderr)
  }
  await eventually(isDone, { deadlineMs: 150_000, intervalMs: 2000, say: `broker ca ${words[0] ?? ''}` })
}

async function around(t: Test, world: World): Promise<void> {
  const { at } = world
  const back = await sealane(['broker', 'deploy', '--replicas', '1', '--move', ...at])
  t.match(back.stderr, /removed +Deployment sealane-broker\/sealane-broker\n/)
  await inContact(world)
  const status = await sealane(['broker', 'status', ...at])
  t.match(status.stdout, /^broker +healthy\n(.*\n)*store +sqlite /)

  const image = ['--etcd-image', ETCD_IMAGE, '--etcd-storage-size', '1Gi']
  const other = await trySealane(['broker', 'deploy', '--replicas', '3', '--move', ...image, ...at])
  t.match(other.stderr, /Secret sealane-broker\/sealane-etcd-client exists, but sealane-etcd-server does not\n/)
}
