/**
 * The first attempt of a user who has read only the README, on clusters that are not prepared: a missing condition is
 * reported at once with the command to type, nothing is changed then, and the next attempt repairs a failed one.
 */
import { execFileSync } from 'node:child_process'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import {
  IMAGE,
  type InstallTarget,
  type World,
  answered,
  joinWords,
  settledObjects,
} from '../support/installing-world.ts'
import type { KubeObject } from '../support/kube-request.ts'
import { mergeKubeconfigs } from '../support/kubeconfig-file.ts'
import { dumpDifference, dumpObjects } from '../support/object-dump.ts'
import { type CommandResult, sealane, trySealane } from '../support/sealane-command.ts'
import { VOLUMES } from '../support/two-clusters.ts'

const BROKER = '/api/v1/namespaces/sealane-broker'

export async function firstTry(t: Test, world: World): Promise<void> {
  const { hub, member, directory } = world
  const parts = [hub, member].map(({ name, cluster }) => ({ context: name, path: cluster.plane.kubeconfig }))
  const both = mergeKubeconfigs(join(directory, 'kubeconfig'), parts)
  await t.test('without flags: all that is missing, at once', (t) => withoutFlags(t, world))
  await t.test('an image that no node can have', (t) => noImage(t, world))
  await t.test('a broken image of the broker', (t) => brokenImage(t, world))
  await t.test('a wrong address', (t) => wrongAddress(t, world))
  await t.test('what no flag names stays', (t) => nothingNamed(t, world))
  await t.test('the lines that token create prints', (t) => pasted(t, world, both))
}

/** Checks that the command fails without the two minutes of a wait, and leaves every object as it was. */
async function refusedAtOnce(t: Test, place: InstallTarget, words: readonly string[]): Promise<CommandResult> {
  const before = await settledObjects(place)
  const done = await trySealane(words)
  t.equal(done.code, 1, words.slice(0, 2).join(' '))
  t.ok(done.ms < 100_000, `it says so after ${(done.ms / 1000).toFixed(1)} s`)
  t.strictSame(dumpDifference(before, await dumpObjects(place.site.api)), [], 'nothing was changed')
  return done
}

/** The disks of the test world are reserved meanwhile, as in a cluster without any storage. */
async function withoutFlags(t: Test, { hub }: World): Promise<void> {
  const { api } = hub.site
  const reserve = (claimRef: object | null) =>
    Promise.all(VOLUMES.map((name) => api.merge(`/api/v1/persistentvolumes/${name}`, { spec: { claimRef } })))
  await reserve({ namespace: 'elsewhere', name: 'data' })
  const bare = await refusedAtOnce(t, hub, ['broker', 'deploy', ...hub.at])
  t.match(
    bare.stderr,
    /the broker cannot be installed on .* with these settings:\n {2}no load balancer: .*\n {2}no volume: .*\n {2}no image: /,
  )
  t.match(bare.stderr, /no image: localhost\/sealane:\S+ is not on node c1n1, and localhost is not a registry/)
  t.match(
    bare.stderr,
    /\nrun: sealane broker deploy --kubeconfig \S+ --service-type NodePort --image REGISTRY\/sealane:\S+\n/,
  )
  await api.post('/apis/storage.k8s.io/v1/storageclasses', {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: 'fast' },
    provisioner: 'example.org/none',
  })
  const named = await refusedAtOnce(t, hub, ['broker', 'deploy', ...hub.at, '--service-type', 'NodePort', ...IMAGE])
  t.match(named.stderr, /available classes: fast\nrun: sealane broker deploy .* --storage-class fast\n/)
  await api.delete('/apis/storage.k8s.io/v1/storageclasses/fast')
  await reserve(null)
}

async function noImage(t: Test, { hub, member, directory }: World): Promise<void> {
  const token = join(directory, 'any-token')
  const nowhere = ['--image', 'localhost/nothing:there']
  const deployed = await refusedAtOnce(t, hub, [
    'broker',
    'deploy',
    ...hub.at,
    '--service-type',
    'NodePort',
    ...nowhere,
  ])
  t.match(deployed.stderr, /no image: localhost\/nothing:there is not on node c1n1/)
  // A short-lived pod on each node asks the registry.
  const remote = ['--image', 'registry.example.org/nothing:there']
  const asked = await refusedAtOnce(t, hub, ['broker', 'deploy', ...hub.at, '--service-type', 'NodePort', ...remote])
  t.match(asked.stderr, /checking node c1n1 for image registry\.example\.org\/nothing:there\n/)
  t.match(asked.stderr, /no image: node c1n1 cannot get registry\.example\.org\/nothing:there: /)
  writeFileSync(token, '', { mode: 0o600 })
  const words = joinWords(member).filter((word) => !IMAGE.includes(word))
  const joined = await refusedAtOnce(t, member, [...words, ...nowhere, '--dry-run'])
  t.match(joined.stderr, /no image: localhost\/nothing:there is not on node c2n1/)
  const secret = await refusedAtOnce(t, member, [...words, ...IMAGE, '--image-pull-secret', 'key', '--dry-run'])
  t.match(secret.stderr, /there is no Secret sealane-system\/key: create it with kubectl /)
}

interface PodObject extends KubeObject {
  readonly status?: {
    readonly containerStatuses?: readonly { readonly state: { readonly waiting?: { readonly reason: string } } }[]
  }
}

/**
 * An image that is known to be missing, and is installed all the same: the wait ends early, and the next attempt
 * repairs it.
 */
async function brokenImage(t: Test, { hub }: World): Promise<void> {
  const deploy = ['broker', 'deploy', ...hub.at]
  const wrong = ['--image', 'localhost/nothing:there', '--force']
  const broken = await trySealane([...deploy, '--service-type', 'NodePort', ...wrong])
  t.equal(broken.code, 1)
  t.ok(broken.ms < 100_000, `not the whole two minutes: ${(broken.ms / 1000).toFixed(1)} s`)
  t.match(broken.stderr, /which needs your action: broker: pod sealane-broker-0: .*localhost\/nothing:there/)
  t.match(broken.stderr, /\nuse --image with an image that its node can get/, 'the hint names the right flag')
  const stuck = await hub.site.api.get<PodObject>(`${BROKER}/pods/sealane-broker-0`)
  t.equal(stuck.status?.containerStatuses?.[0]?.state.waiting?.reason, 'ImagePullBackOff')
  const mended = await sealane([...deploy, ...IMAGE])
  t.match(
    mended.stderr,
    /a broker is already installed: these settings change\n {2}image\.repository: localhost\/nothing → /,
  )
  t.match(mended.stderr, /removed {3}Pod sealane-broker\/sealane-broker-0/)
  t.comment(`mended in ${(mended.ms / 1000).toFixed(1)} s`)
}

/** Tokens carry the wrong address, so that no cluster can join; the next deploy and a new token repair it. */
async function wrongAddress(t: Test, world: World): Promise<void> {
  const { hub, member } = world
  await sealane(['broker', 'deploy', ...hub.at, '--advertise', '192.0.2.250:7443'])
  const wrong = await trySealane([...joinWords(member), '--timeout', '15s', '--token-file', await token(world)])
  t.equal(wrong.code, 1)
  t.match(wrong.stderr, /192\.0\.2\.250/, 'it says which address does not answer')
  const mended = await sealane(['broker', 'deploy', ...hub.at, '--advertise', 'auto'])
  t.match(mended.stderr, /broker\.advertise: \["192\.0\.2\.250:7443"\] → nothing\n/)
  const joined = await sealane([...joinWords(member), '--token-file', await token(world)])
  t.match(joined.stdout, /^c2 has joined /)
  await sealane([...joinWords(hub), '--token-file', await token(world)])
  await sealane(['export', 'hello', '--namespace', 'demo', ...hub.at])
  await answered(world)
}

async function token({ hub, directory }: World): Promise<string> {
  const made = await sealane(['token', 'create', ...hub.at, '-o', 'json'])
  const file = join(directory, 'a-token')
  writeFileSync(file, (JSON.parse(made.stdout) as { token: string }).token, { mode: 0o600 })
  return file
}

interface StatefulSetObject extends KubeObject {
  readonly spec: { readonly template: { readonly spec: object } }
}

/** Settings that were made by other means, such as kubectl, are respected too. */
async function nothingNamed(t: Test, { hub }: World): Promise<void> {
  const { api } = hub.site
  const path = '/apis/apps/v1/namespaces/sealane-broker/statefulsets/sealane-broker'
  const resources = { requests: { cpu: '70m', memory: '150Mi' }, limits: { memory: '600Mi' } }
  await api.apply(path, {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: { name: 'sealane-broker', namespace: 'sealane-broker' },
    spec: { template: { spec: { containers: [{ name: 'broker', resources }] } } },
  })
  await sealane(['broker', 'deploy', ...hub.at])
  const before = await settled(hub)
  const again = await sealane(['broker', 'deploy', ...hub.at])
  t.match(again.stderr, /a broker is already installed: its settings are kept\n/)
  t.notMatch(again.stderr, /^ {2}(created|changed) /m, 'nothing to do')
  t.strictSame(dumpDifference(before, await settled(hub)), [], 'and nothing is changed')
  const { spec } = await api.get<StatefulSetObject>(path)
  t.match(spec.template.spec, { containers: [{ image: IMAGE[1], resources }] })
  const bad = await trySealane(['broker', 'deploy', ...hub.at, '--clusterset', 'other'])
  t.match(bad.stderr, /--clusterset other: .* its clusterset is default and cannot be changed after the first start\n/)
}

async function settled({ site }: InstallTarget): Promise<ReadonlyMap<string, string>> {
  const all = await dumpObjects(site.api)
  return new Map([...all].filter(([path]) => path.includes(' sealane-broker/')))
}

/**
 * A shell accepts the printed lines unchanged: the token goes into a file that only its owner reads, and is on no
 * command line.
 */
async function pasted(t: Test, { directory }: World, kubeconfig: string): Promise<void> {
  const made = await sealane(['token', 'create', '--kubeconfig', kubeconfig, '--context', 'c1'])
  const script = `sealane() { echo "sealane $*"; }\n${made.stdout}`
  const said = execFileSync('/bin/bash', ['-c', script], { cwd: directory, encoding: 'utf8' })
  t.equal(said, `sealane join --kubeconfig ${kubeconfig} --context c2 --token-file token.txt\n`)
  const file = join(directory, 'token.txt')
  t.match(readFileSync(file, 'utf8'), /^sealane1\.\S+\n$/)
  t.equal(statSync(file).mode & 0o777, 0o600)
}
