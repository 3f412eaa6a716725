/** The policy sealane-pods: which pods may be privileged in our namespace. */
import type { Test } from 'tap'
import { memberObjects } from '../support/installed-objects.ts'
import type { Json, KubeRequest } from '../support/kube-request.ts'
import { refusedWithin } from '../support/refusals.ts'

const SYSTEM = 'sealane-system'
const eventuallyRefused = refusedWithin(60_000)
const PODS = `/api/v1/namespaces/${SYSTEM}/pods`

type PodSpec = Readonly<Record<string, unknown>> & { readonly containers: readonly [Json] }

function templateOf(kind: string, part: string): PodSpec {
  const object = memberObjects().find((one) => one.kind === kind && one.metadata.name === `sealane-${part}`)
  return (object as unknown as { spec: { template: { spec: PodSpec } } }).spec.template.spec
}

function pod(spec: object, metadata: object = {}): Json {
  return { apiVersion: 'v1', kind: 'Pod', metadata: { generateName: 'try-', namespace: SYSTEM, ...metadata }, spec }
}

/**
 * Pods of the DaemonSets are accepted as they are installed, and other pods only if Pod Security calls them restricted.
 */
export async function privilegedPods(t: Test, api: KubeRequest): Promise<void> {
  const made =
    (spec: object, metadata: object = {}) =>
    (): Promise<unknown> =>
      api.post(`${PODS}?dryRun=All&fieldValidation=Strict`, pod(spec, metadata))
  const madeBy = (part: string): object => ({
    ownerReferences: [
      { apiVersion: 'apps/v1', kind: 'DaemonSet', name: `sealane-${part}`, uid: 'd1', controller: true },
    ],
  })
  const plain = templateOf('Deployment', 'agent')
  const [container] = plain.containers
  const securityContext = (change: object): PodSpec => {
    const before = container['securityContext'] as object
    return { ...plain, containers: [{ ...container, securityContext: { ...before, ...change } }] }
  }
  const gateway = templateOf('DaemonSet', 'gateway')
  const mounting = (spec: PodSpec, source: object): PodSpec => {
    return { ...spec, volumes: [...(spec['volumes'] as readonly object[]), { name: 'x', ...source }] }
  }
  const who = 'only the DaemonSets of gateway and routeagent'
  const host = new RegExp(`hostNetwork is allowed for ${who}; hostPID and hostIPC are not allowed`)
  const mounts = new RegExp(`a hostPath volume is allowed for ${who}`)
  const capabilities = /every container here must drop ALL capabilities; NET_ADMIN is allowed for/
  const root = /runAsNonRoot: true is required/
  const escalates = /allowPrivilegeEscalation: false, and must not be privileged/
  await eventuallyRefused(t, made({ ...plain, hostNetwork: true }), host, 'the network of the node')
  const refused: readonly (readonly [string, () => Promise<unknown>, RegExp])[] = [
    ['processes of the node', made({ ...plain, hostPID: true }), host],
    ['of a gateway, too', made({ ...gateway, hostPID: true }, madeBy('gateway')), host],
    ['a file of the node', made(mounting(plain, { hostPath: { path: '/var/lib/sealane' } })), mounts],
    ['another file for a gateway', made(mounting(gateway, { hostPath: { path: '/' } }), madeBy('gateway')), mounts],
    ['an old kind of volume', made(mounting(plain, { nfs: { server: 's', path: '/' } })), mounts],
    [
      'a port of the node',
      made({ ...plain, containers: [{ ...container, ports: [{ containerPort: 1, hostPort: 1 }] }] }),
      /hostPort is allowed for/,
    ],
    ['all power', made(securityContext({ privileged: true, allowPrivilegeEscalation: undefined })), escalates],
    ['growing power', made(securityContext({ allowPrivilegeEscalation: true })), escalates],
    ['no word about it', made(securityContext({ allowPrivilegeEscalation: undefined })), escalates],
    ['a capability', made(securityContext({ capabilities: { drop: ['ALL'], add: ['NET_ADMIN'] } })), capabilities],
    ['those that all have', made(securityContext({ capabilities: {} })), capabilities],
    ['root', made(securityContext({ runAsUser: 0, runAsNonRoot: false })), root],
    [
      'root, said of the pod',
      made({ ...plain, securityContext: { seccompProfile: { type: 'RuntimeDefault' } } }),
      root,
    ],
    ['no filter of system calls', made(securityContext({ seccompProfile: { type: 'Unconfined' } })), /seccompProfile/],
    ['none said', made({ ...plain, securityContext: { runAsNonRoot: true } }), /seccompProfile/],
    ['another domain', made(securityContext({ seLinuxOptions: { type: 'spc_t' } })), /pods here must not set sysctls/],
    [
      'sysctls',
      made({
        ...plain,
        securityContext: {
          ...(plain['securityContext'] as object),
          sysctls: [{ name: 'net.ipv4.ip_forward', value: '1' }],
        },
      }),
      /sysctls/,
    ],
    ['in a container before', made({ ...plain, initContainers: [{ name: 'i', image: 'x' }] }), escalates],
    ['the account of a gateway alone', made(gateway), host],
    ['the DaemonSet of another part', made(gateway, madeBy('routeagent')), host],
    ['another account', made({ ...gateway, serviceAccountName: 'default' }, madeBy('gateway')), host],
  ]
  for (const [name, attempt, refusal] of refused) await t.rejects(attempt(), refusal, name)
  for (const part of ['agent', 'dns']) await made(templateOf('Deployment', part))()
  for (const part of ['gateway', 'routeagent']) await made(templateOf('DaemonSet', part), madeBy(part))()
  const typed = (type: string): PodSpec => {
    return { ...gateway, securityContext: { ...(gateway['securityContext'] as object), seLinuxOptions: { type } } }
  }
  await made(typed('spc_t'), madeBy('gateway'))()
  await t.rejects(made(typed('super_t'), madeBy('gateway'))(), /type spc_t is allowed for/, 'a wider domain')
  t.pass('all parts are let in')
  await debugged(t, api, pod(plain))
  const policy = await api.get('/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/sealane-pods')
  t.notOk(
    (policy['status'] as { typeChecking?: { expressionWarnings?: unknown } } | undefined)?.typeChecking
      ?.expressionWarnings,
    'its expressions fit pods',
  )
}

/** A container that is added later is checked like the others; other changes of a pod are not checked. */
async function debugged(t: Test, api: KubeRequest, made: Json): Promise<void> {
  const { metadata } = await api.post(PODS, made)
  const path = `${PODS}/${metadata.name}`
  const added = (securityContext: object) => (): Promise<unknown> =>
    api.merge(`${path}/ephemeralcontainers`, {
      spec: { ephemeralContainers: [{ name: 'debug', image: 'x', securityContext }] },
    })
  await t.rejects(added({ privileged: true })(), /every container here needs allowPrivilegeEscalation/, 'privileged')
  await t.rejects(added({})(), /every container here needs allowPrivilegeEscalation/, 'as kubectl debug makes it')
  await added({ allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } })()
  await api.merge(path, { metadata: { labels: { other: 'free' } } })
  await api.delete(path)
}
