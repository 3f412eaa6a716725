/** Three clusters, none of them special, as a test of their life together looks at them. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { type BackgroundCalls, callInBackground } from './background-calls.ts'
import { type Site, callers, helloDeployment, helloService, openNamespace, readyPods } from './callers.ts'
import type { KubeObject, KubeRequest } from './kube-request.ts'
import { lastWords } from './pod-logs.ts'
import { type CommandResult, sealane } from './sealane-command.ts'
import { exportService } from './service-imports.ts'
import { tokenIn } from './token-text.ts'
import { type ClusterRow, SEALANE_IMAGE, type TestCluster, type TestClusters, startClusters } from './two-clusters.ts'

export interface Member extends Site {
  readonly cluster: TestCluster
  /** Flags that name it. */
  readonly at: readonly string[]
}

export interface Three {
  readonly directory: string
  readonly clusters: TestClusters
  readonly hub: Member
  readonly c1: Member
  readonly c2: Member
}

/**
 * The addresses of the first two overlap, those of the third lie apart: its coming gives nobody other addresses, so
 * that whatever is lost meanwhile is lost for nothing.
 */
const ROWS: readonly ClusterRow[] = [
  { name: 'hub', podCIDR: '10.42.0.0/16', serviceCIDR: '10.43.0.0/16', nodes: ['hubn1'] },
  { name: 'c1', podCIDR: '10.42.0.0/16', serviceCIDR: '10.43.0.0/16', nodes: ['c1n1'] },
  { name: 'c2', podCIDR: '10.62.0.0/16', serviceCIDR: '10.63.0.0/16', nodes: ['c2n1'] },
]

/**
 * Starts them with something to call and to call from in each, and nothing of Sealane. Its parts will have this in
 * their environment.
 */
export async function startThree(
  directory: string,
  environment: Readonly<Record<string, string>> = {},
): Promise<Three> {
  const clusters = await startClusters({ directory, rows: ROWS, environment })
  try {
    const members = await Promise.all(clusters.clusters.map(openMember))
    const [hub, c1, c2] = members
    if (hub === undefined || c1 === undefined || c2 === undefined) throw new Error('three clusters were asked for')
    return { directory, clusters, hub, c1, c2 }
  } catch (error) {
    await clusters.stop()
    throw error
  }
}

async function openMember(cluster: TestCluster): Promise<Member> {
  const { row, plane } = cluster
  const site: Site = { name: row.name, api: plane.api, kubeconfig: plane.kubeconfig }
  await openNamespace(site, 'demo', helloDeployment(row.name))
  await plane.api.apply(`/api/v1/namespaces/demo/services/${serviceOf(site)}`, helloService(serviceOf(site)))
  await readyPods(site, 'demo', 2)
  return { ...site, cluster, at: ['--kubeconfig', plane.kubeconfig] }
}

/** The Service that it alone exports. */
export function serviceOf({ name }: Pick<Site, 'name'>): string {
  return `hello-${name}`
}

export function hostOf(service: string): string {
  return `${service}.demo.svc.clusterset.local`
}

export async function deployBroker({ hub }: Three): Promise<void> {
  await sealane(['broker', 'deploy', ...hub.at, '--service-type', 'NodePort', '--image', SEALANE_IMAGE])
}

/** The words of a join with a new token of the broker on the hub, which is in a file. */
export async function joinWords({ hub, directory }: Three, { name, at, cluster }: Member): Promise<readonly string[]> {
  const { stdout } = await sealane(['token', 'create', ...hub.at, '--cluster-id', name])
  const file = join(directory, `token-${name}`)
  writeFileSync(file, tokenIn(stdout), { mode: 0o600 })
  const who = ['--cluster-id', name, '--pod-cidr', cluster.row.podCIDR]
  return ['join', ...at, ...who, '--token-file', file, '--yes', '--image', SEALANE_IMAGE]
}

/** Joins, and exports its own Service. */
export async function joinMember(three: Three, member: Member): Promise<CommandResult> {
  const done = await sealane(await joinWords(three, member))
  await exportService(member, 'demo', serviceOf(member))
  return done
}

/** Waits until each is answered by each, by the name that it alone has. */
export async function allReachAll(members: readonly Member[]): Promise<void> {
  await Promise.all(members.flatMap((from) => members.map((to) => reaches(from, to))))
}

async function reaches(from: Member, to: Member): Promise<void> {
  const call = { namespace: 'demo', host: hostOf(serviceOf(to)), times: 1 }
  await eventually(
    async () => {
      const who = await callers(from, call)
      if (who === to.name) return true
      throw new Error(`"${who}"`)
    },
    { deadlineMs: 90_000, intervalMs: 300, say: `${from.name} is answered by ${to.name}` },
  )
}

/** Calls that go on, each for three seconds at most, so that a lost packet or two is no lost call. */
export function keepCalling(from: Member, ...to: readonly Member[]): Promise<BackgroundCalls> {
  const targets = to.map((member) => ({
    name: `${from.name} to ${member.name}`,
    argv: ['nc', '-4', '-w', '3', hostOf(serviceOf(member)), '42'],
    seconds: 3,
    answer: new RegExp(`^${member.name}$`),
  }))
  return callInBackground(from, 'demo', targets)
}

/** Hangs up; every call was answered. Otherwise what the parts of those members said last is printed. */
export async function nothingLost(
  t: Test,
  calls: readonly BackgroundCalls[],
  members: readonly Member[],
  say: string,
): Promise<void> {
  const lost = await lostCalls(calls)
  t.strictSame(lost, [], say)
  if (lost.length === 0) return
  for (const { name, api } of members) {
    const [pods, said] = await Promise.all([
      readiness(api).catch(String),
      lastWords(api, 'sealane-system', 40).catch(String),
    ])
    t.comment(`${name}:\n${pods}\n${said}`)
  }
}

/** Hangs up; what was lost, in words. */
async function lostCalls(all: readonly BackgroundCalls[]): Promise<readonly string[]> {
  const reports = await Promise.all(all.map((calls) => calls.stop()))
  return reports.flatMap((report) =>
    [...report].flatMap(([name, { calls, unanswered, longestGapMs, gapEndsMs }]) => {
      const until = new Date(gapEndsMs).toISOString()
      return unanswered === 0
        ? []
        : [`${name}: ${unanswered} of ${calls} calls, longest gap ${longestGapMs} ms until ${until}`]
    }),
  )
}

interface Conditioned extends KubeObject {
  readonly status?: {
    readonly conditions?: readonly {
      readonly type: string
      readonly status: string
      readonly lastTransitionTime: string
    }[]
  }
}

/** Since when nodes, and the pods that are called, are ready or not: what is not ready is called by nobody. */
async function readiness(api: KubeRequest): Promise<string> {
  const lists = ['/api/v1/nodes', '/api/v1/namespaces/demo/pods'].map((path) => api.list<Conditioned>(path))
  return (await Promise.all(lists))
    .flat()
    .map(({ metadata, status }) => {
      const ready = status?.conditions?.find(({ type }) => type === 'Ready')
      return `${metadata.name} ready ${ready?.status ?? 'unknown'} since ${ready?.lastTransitionTime ?? 'unknown'}`
    })
    .join('\n')
}
