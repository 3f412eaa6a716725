/**
 * `sealane gather` of a real cluster in which secrets lie wherever somebody may leave them: none of them is in the file,
 * and who has the file alone learns what is wrong.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import type { Test } from 'tap'
import { spellingsOf } from '../../../cli/bundle/redactor.ts'
import { unpackTar } from '../../../cli/bundle/tar.ts'
import { CARRIERS, JOIN_TOKEN, PASSWORD, SECRETS } from '../../cli/bundle/planted-secrets.ts'
import { eventually } from '../../support/eventually.ts'
import type { Site } from './callers.ts'
import type { KubeObject } from './kube-request.ts'
import { sealane, trySealane } from './sealane-command.ts'

export interface GatherStoryInit {
  readonly site: Site
  /** Of the site's gateway. */
  readonly node: string
  /** A ServiceExport of it: `/apis/…`. */
  readonly serviceExport: string
  /** With a context of the site's name. */
  readonly kubeconfig: string
  /** Where the token of its join is, in the file `token`. */
  readonly directory: string
}

const SYSTEM = '/api/v1/namespaces/sealane-system'
const NOTES = Object.fromEntries(CARRIERS.map((text, i) => [`example.org/note-${i}`, text]))

export async function gatherStory(t: Test, init: GatherStoryInit): Promise<void> {
  const { site, kubeconfig, directory } = init
  await plant(init)
  const file = join(directory, `${site.name}.tar.gz`)
  const at = ['--context', site.name]
  const env = { KUBECONFIG: kubeconfig }
  const { stdout, stderr, ms } = await sealane(['gather', ...at, '-o', file], env)
  t.comment(`gathered in ${Math.round(ms)} ms: ${stderr}`)

  const archive = gunzipSync(readFileSync(file))
  const files = unpackTar(archive, 5000)
  for (const [name, has] of [
    ['objects/Node.json', 'example.org/note-0'],
    ['objects/ServiceExport.json', 'example.org/note-0'],
    ['objects/Service.json', 'example.org/note-0'],
    ['objects/ConfigMap.json', 'planted'],
    ['objects/Event.json', 'planted'],
    ['objects/Pod.json', 'ETCD_PASSWORD'],
    ['logs/planted.main.txt', 'joining with '],
    ['facts.json', site.name],
  ] as const) {
    t.ok(files.get(`sealane-gather/${name}`)?.includes(has), `${name} has ${has}`)
  }
  const secrets = [...SECRETS, ...(await ownSecrets(t, init))].flatMap(spellingsOf)
  for (const [where, text] of [
    ['all bytes of the bundle', archive.toString('latin1')],
    ['what is said of it', `${stdout}${stderr}`],
  ] as const) {
    t.same(
      secrets.filter((one) => text.includes(one)),
      [],
      where,
    )
  }
  await sameStatus(t, file, () => trySealane(['status', ...at, '-o', 'json'], env))
  await takeAway(init)
}

/** What was planted beside the story's own namespace. */
async function takeAway({ site: { api }, node }: GatherStoryInit): Promise<void> {
  const planted = ['secrets', 'configmaps', 'services', 'events', 'pods']
  await Promise.all(planted.map((plural) => api.delete(`${SYSTEM}/${plural}/planted`)))
  const annotations = Object.fromEntries(Object.keys(NOTES).map((name) => [name, null]))
  await api.merge(`/api/v1/nodes/${node}`, { metadata: { annotations } })
}

/** Everywhere that the bundle looks, and in a Secret, which it does not ask for. */
async function plant({ site: { api }, node, serviceExport }: GatherStoryInit): Promise<void> {
  const metadata = { name: 'planted', namespace: 'sealane-system', annotations: NOTES }
  const base64 = (text: string): string => Buffer.from(text).toString('base64')
  await api.apply(`${SYSTEM}/secrets/planted`, {
    ...{ apiVersion: 'v1', kind: 'Secret', metadata },
    data: { password: base64(PASSWORD), token: base64(JOIN_TOKEN), notes: base64(CARRIERS.join('\n')) },
  })
  const data = Object.fromEntries(CARRIERS.map((text, i) => [`note-${i}`, text]))
  await api.apply(`${SYSTEM}/configmaps/planted`, { apiVersion: 'v1', kind: 'ConfigMap', metadata, data })
  await api.apply(`${SYSTEM}/services/planted`, {
    ...{ apiVersion: 'v1', kind: 'Service', metadata },
    spec: { ports: [{ port: 80, protocol: 'TCP' }] },
  })
  for (const path of [`/api/v1/nodes/${node}`, serviceExport])
    await api.merge(path, { metadata: { annotations: NOTES } })
  const now = new Date().toISOString().replace(/\.\d+/, '')
  await api.post(`${SYSTEM}/events`, {
    ...{ apiVersion: 'v1', kind: 'Event', metadata, reason: 'Planted', type: 'Warning' },
    involvedObject: { kind: 'Pod', namespace: 'sealane-system', name: 'planted' },
    message: CARRIERS.filter(({ length }) => length < 60).join('\n'),
    ...{ firstTimestamp: now, lastTimestamp: now, count: 1, source: { component: 'test' } },
  })
  await api.apply(`${SYSTEM}/pods/planted`, talkingPod(metadata))
  const log = `${SYSTEM}/pods/planted/log?container=main`
  await eventually(async () => (await api.raw('GET', log)).text.includes(CARRIERS.at(-1) ?? ''), {
    deadlineMs: 60_000,
    intervalMs: 200,
    say: 'the pod has said it all',
  })
}

/** The secrets are in its variables, on its command line and in its log. Policy `sealane-pods` takes it. */
function talkingPod(metadata: object): object {
  const main = {
    securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
    name: 'main',
    image: 'nicolaka/netshoot:v0.15',
    command: ['sh', '-c', 'printf "%s\\n" "$@"; exec sleep infinity', 'sh', ...CARRIERS],
    env: [
      { name: 'ETCD_PASSWORD', value: PASSWORD },
      { name: 'NOTES', value: CARRIERS.join('\n') },
    ],
  }
  const securityContext = { runAsNonRoot: true, runAsUser: 65534, seccompProfile: { type: 'RuntimeDefault' } }
  const spec = { terminationGracePeriodSeconds: 0, securityContext, containers: [main] }
  return { apiVersion: 'v1', kind: 'Pod', metadata, spec }
}

/** Private keys and tokens that the cluster has of its own: each line of a key, and the token of its join. */
async function ownSecrets(t: Test, { site: { api }, directory }: GatherStoryInit): Promise<readonly string[]> {
  interface Secret extends KubeObject {
    readonly data?: Readonly<Record<string, string>>
  }
  const found = await Promise.all(
    ['sealane-system', 'sealane-broker'].map((name) => api.list<Secret>(`/api/v1/namespaces/${name}/secrets`)),
  )
  const texts = found.flat().flatMap(({ data = {} }) => Object.values(data).map((one) => Buffer.from(one, 'base64')))
  const keys = texts.map(String).flatMap((text) => text.match(PEM_BODY) ?? [])
  t.ok(keys.length > 0, `the cluster has ${keys.length} private keys`)
  const lines = keys.flatMap((body) => body.split(/\\n|\s+/)).filter((line) => line.length > 30)
  return [...lines, readFileSync(join(directory, 'token'), 'utf8').trim()]
}

const PEM_BODY = /(?<=-----BEGIN [A-Z ]*PRIVATE KEY-----)[^-]+(?=-----END)/g

interface ShownStatus {
  readonly health: string
  readonly problems: readonly { readonly reason: string; readonly severity: string; readonly subject: object }[]
}

/** What is wrong with the cluster now, and what the file says of it, each with the exit code. */
async function sameStatus(t: Test, file: string, lookNow: () => ReturnType<typeof trySealane>): Promise<void> {
  const statusIn = (stdout: string): ShownStatus => {
    const { health, problems } = JSON.parse(stdout) as ShownStatus
    return { health, problems: problems.map(({ reason, severity, subject }) => ({ reason, severity, subject })) }
  }
  const live = await lookNow()
  const now = statusIn(live.stdout)
  t.not(now.problems.length, 0, `there is something to be seen: ${JSON.stringify(now)}`)
  for (const command of ['status', 'diagnose']) {
    const { code, stdout, stderr } = await trySealane([command, '--bundle', file, '-o', 'json'])
    t.same([code, statusIn(stdout)], [live.code, now], `${command} of the bundle says the same ${stderr}`)
  }
}
