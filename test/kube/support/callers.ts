/** Pods that say where they are, pods that call them, and short ways to ask for both. */
import { eventually } from '../../support/eventually.ts'
import type { Json, KubeRequest } from './kube-request.ts'
import { execInPod } from './node.ts'

/** A cluster as a caller sees it. */
export interface Site {
  readonly name: string
  readonly api: KubeRequest
  readonly kubeconfig: string
}

const LABELS = { app: 'hello' }

/** Answers every TCP connection and every UDP packet on port 42 with the site's name. */
export function helloDeployment(site: string, replicas = 1): Json {
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'hello' },
    spec: { replicas, selector: { matchLabels: LABELS }, template: template(LABELS, site) },
  }
}

/** The same with pods that have names of their own, under the Service of that name. */
export function helloStatefulSet(site: string, name: string, replicas: number): Json {
  const labels = { app: name }
  return {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: { name },
    spec: {
      replicas,
      serviceName: name,
      podManagementPolicy: 'Parallel',
      selector: { matchLabels: labels },
      template: template(labels, site),
    },
  }
}

// A program that never forks: socat starts a shell for each call, and loses datagrams while it forks.
const TCP_SERVER =
  'use Socket; $SIG{PIPE} = "IGNORE"; socket(S, PF_INET, SOCK_STREAM, 0) && setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1) ' +
  '&& bind(S, sockaddr_in(42, INADDR_ANY)) && listen(S, 128) or die $!; ' +
  'while (1) { accept(C, S) or next; syswrite(C, "$ARGV[0]\n"); close C }'
const UDP_SERVER =
  'use Socket; socket(S, PF_INET, SOCK_DGRAM, 0) && bind(S, sockaddr_in(42, INADDR_ANY)) or die $!; ' +
  'while (my $from = recv(S, my $asked, 512, 0)) { send(S, "$ARGV[0]\n", 0, $from) }'

function template(labels: Json, site: string): Json {
  const tcp = ['perl', '-e', TCP_SERVER, site]
  const udp = ['perl', '-e', UDP_SERVER, site]
  const image = 'alpine/socat:1.7.4.4'
  return {
    metadata: { labels },
    spec: {
      terminationGracePeriodSeconds: 0,
      containers: [
        { name: 'tcp', image, command: tcp },
        { name: 'udp', image, command: udp },
      ],
    },
  }
}

/** A Service in front of those pods, by default with port 42 of both protocols. */
export function helloService(name: string, spec: Json = {}): Json {
  const ports = [
    { name: 'tcp', port: 42, protocol: 'TCP' },
    { name: 'udp', port: 42, protocol: 'UDP' },
  ]
  return { apiVersion: 'v1', kind: 'Service', metadata: { name }, spec: { selector: LABELS, ports, ...spec } }
}

/** A pod to call from, with the usual programs. */
export const REQUEST_POD: Json = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'request' },
  spec: {
    terminationGracePeriodSeconds: 0,
    containers: [{ name: 'request', image: 'nicolaka/netshoot:v0.15', args: ['sleep', 'infinity'] }],
  },
}

/** The same pod, or template of pods, bound to a node. */
export function onNode(pod: Json, nodeName: string): Json {
  return { ...pod, spec: { ...(pod as { spec: Json }).spec, nodeName } }
}

/** Makes the namespace with the pods in it. */
export async function openNamespace(site: Site, namespace: string, deployment: Json): Promise<void> {
  await openForCalls(site, namespace)
  await site.api.apply(`/apis/apps/v1/namespaces/${namespace}/deployments/hello`, deployment)
}

/** Makes the namespace with nothing in it but the pod to call from; on that node, when one is named. */
export async function openForCalls(site: Site, namespace: string, node?: string): Promise<void> {
  await site.api.apply(`/api/v1/namespaces/${namespace}`, {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: namespace },
  })
  // Pods are refused until the namespace has its ServiceAccount.
  await eventually(() => site.api.find(`/api/v1/namespaces/${namespace}/serviceaccounts/default`))
  const pod = node === undefined ? REQUEST_POD : onNode(REQUEST_POD, node)
  await site.api.apply(`/api/v1/namespaces/${namespace}/pods/request`, pod)
}

interface PodObject {
  readonly metadata: { readonly name: string }
  readonly status: {
    readonly podIP?: string
    readonly conditions?: readonly { readonly type: string; readonly status: string }[]
  }
}

/** Waits until that many pods of the namespace are ready; gives their addresses by name. */
export async function readyPods(site: Site, namespace: string, count: number): Promise<ReadonlyMap<string, string>> {
  return await eventually(
    async () => {
      const pods = await site.api.list<PodObject>(`/api/v1/namespaces/${namespace}/pods`)
      const ready = pods.filter(({ status }) =>
        status.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True'),
      )
      if (ready.length === count) return new Map(ready.map((pod) => [pod.metadata.name, pod.status.podIP ?? '']))
      throw new Error(`${ready.length} of ${pods.length} pods are ready`)
    },
    { deadlineMs: 60_000, say: `${count} pods in ${namespace} of ${site.name} are ready` },
  )
}

/** Runs a shell script in the pod `request`; gives its output, whatever its code. Throws when it cannot be run. */
export async function inRequestPod(site: Site, namespace: string, script: string): Promise<string> {
  const what = { namespace, pod: 'request', argv: ['sh', '-c', script], timeoutSeconds: 60 }
  const { code, stdout, stderr } = await execInPod(site.kubeconfig, what)
  if (code === 255) throw new Error(`the script did not run in ${namespace}/request of ${site.name}: ${stderr}`)
  return stdout
}

export interface Call {
  readonly namespace: string
  /** Name or address. */
  readonly host: string
  readonly port?: number
  readonly protocol?: 'tcp' | 'udp'
  /** Default 4. */
  readonly family?: 4 | 6
  readonly times?: number
}

/**
 * Calls one after the other, each over a connection of its own. Gives who answered, each once and in order, and
 * "nobody" when a call had no answer: such as "c1 c2".
 */
export async function callers(site: Site, call: Call): Promise<string> {
  const { namespace, host, port = 42, protocol = 'tcp', family = 4, times = 10 } = call
  const to = `-w 2 ${host} ${port}`
  const nc = protocol === 'tcp' ? `nc -${family} ${to} < /dev/null` : `echo hi | nc -${family} -u -W 1 ${to}`
  const once = `answer=$(${nc} 2> /dev/null); echo "\${answer:-nobody}"`
  const output = await inRequestPod(site, namespace, `for i in $(seq ${times}); do ${once}; done`)
  return [...new Set(output.split('\n').filter((line) => line !== ''))].sort().join(' ')
}

/** What cluster DNS says: the status and the data of all answers in order, such as "NOERROR 245.0.0.7". */
export async function lookUp(site: Site, namespace: string, name: string, type: string): Promise<string> {
  const output = await inRequestPod(site, namespace, `dig +tries=1 +noall +comments +answer ${name} ${type}`)
  const status = /status: ([A-Z]+)/.exec(output)?.[1] ?? 'no answer'
  const records = output.split('\n').filter((line) => line !== '' && !line.startsWith(';'))
  return [status, ...records.map((line) => line.split(/\s+/).slice(4).join(' ')).sort()].join(' ')
}
