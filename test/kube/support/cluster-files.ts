/** The folder of a test cluster's certificates, keys and kubeconfigs. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { join } from 'node:path'
import { type ClusterCa, makeClusterCa, makeTokenKey } from './cluster-certificates.ts'
import { FILES } from './control-plane-arguments.ts'
import type { KubeRequest } from './kube-request.ts'
import { type Credentials, writeKubeconfig } from './kubeconfig-file.ts'

/** Who a kubeconfig is for: a client certificate's user and groups, or a ServiceAccount with a real token. */
export type Subject =
  | { readonly user: string; readonly groups?: readonly string[]; readonly validMs?: number }
  | { readonly serviceAccount: { readonly namespace: string; readonly name: string }; readonly seconds?: number }

export interface ClusterFilesInit {
  /** The folder; it is made. */
  readonly files: string
  readonly cluster: string
  /** The address that the API server listens on. */
  readonly address: string
  readonly serviceCIDR: string
}

/** Makes the folder with the CA, the API server's certificates and the key for tokens. Gives the CA. */
export async function writeClusterFiles(init: ClusterFilesInit): Promise<ClusterCa> {
  const { files, cluster, address, serviceCIDR } = init
  mkdirSync(files, { recursive: true, mode: 0o700 })
  const ca = await makeClusterCa(cluster)
  const names = ['kubernetes', 'kubernetes.default', 'kubernetes.default.svc', 'kubernetes.default.svc.cluster.local']
  const hosts = [...names, 'localhost', '127.0.0.1', address, firstAddress(serviceCIDR)]
  const server = await ca.issue({ name: 'kube-apiserver', hosts: [...new Set(hosts)] })
  const kubelet = await ca.issue({ name: 'kube-apiserver-kubelet-client', groups: ['system:masters'] })
  const tokens = await makeTokenKey()
  const write = (file: keyof typeof FILES, text: string): void =>
    writeFileSync(join(files, FILES[file]), text, { mode: 0o600 })
  write('ca', ca.certificate)
  write('caKey', ca.key)
  write('server', server.certificate)
  write('serverKey', server.key)
  write('kubelet', kubelet.certificate)
  write('kubeletKey', kubelet.key)
  write('tokens', tokens.publicKey)
  write('tokensKey', tokens.key)
  return ca
}

/** The Service `kubernetes` always gets the first address of the (first) range. */
function firstAddress(serviceCIDR: string): string {
  const address = serviceCIDR.split(/[/,]/)[0] ?? ''
  return isIP(address) === 6 ? address.replace(/::$/, '::1') : address.replace(/\d+$/, (last) => `${Number(last) + 1}`)
}

export interface KubeconfigWriter {
  /** Writes `<file>.kubeconfig` for credentials and gives its path. */
  write(file: string, user: string, credentials: Credentials, url: string): string
  /** The same for a component of the control plane, by a client certificate. */
  forUser(file: string, user: string, url: string): Promise<string>
  /** The same for anybody, under a file name of its own. Asks `api` for a token when one is needed. */
  forSubject(subject: Subject, api: KubeRequest, url: string): Promise<string>
}

export function kubeconfigWriter(files: string, cluster: string, ca: ClusterCa): KubeconfigWriter {
  let count = 0
  const writer: KubeconfigWriter = {
    write: (file, user, credentials, url) =>
      writeKubeconfig(join(files, `${file}.kubeconfig`), { cluster, user, url, ca: ca.certificate, credentials }),
    forUser: async (file, user, url) => writer.write(file, user, await ca.issue({ name: user }), url),
    forSubject: async (subject, api, url) => {
      const credentials = await credentialsOf(subject, ca, api)
      return writer.write(`user-${++count}`, nameOf(subject), credentials, url)
    },
  }
  return writer
}

/** A new certificate, or a token asked for with TokenRequest. */
export async function credentialsOf(subject: Subject, ca: ClusterCa, api: KubeRequest): Promise<Credentials> {
  if ('user' in subject) {
    const { user, groups = [], validMs } = subject
    return ca.issue({ name: user, groups, ...(validMs === undefined ? {} : { validMs }) })
  }
  const { namespace, name } = subject.serviceAccount
  const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`
  const answer = await api.post<{ status: { token: string } }>(path, {
    apiVersion: 'authentication.k8s.io/v1',
    kind: 'TokenRequest',
    spec: { expirationSeconds: subject.seconds ?? 3600 },
  })
  return { token: answer.status.token }
}

function nameOf(subject: Subject): string {
  return 'user' in subject ? subject.user : `${subject.serviceAccount.namespace}-${subject.serviceAccount.name}`
}
