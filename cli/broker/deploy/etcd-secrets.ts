/**
 * The certificates of the etcd that is installed with the broker. They are created once, and issued again when half of
 * their validity is over. The authority's key is in a Secret that no pod mounts.
 */
import {
  ETCD_CLIENT_SECRET,
  ETCD_SERVER_NAME,
  ETCD_SERVER_SECRET,
  type ManifestObject,
  etcdHosts,
  partLabels,
} from '../../../install/values/values.ts'
import {
  type Identity,
  certificateToPem,
  certificatesFromPem,
  createEtcdCa,
  createEtcdCertificate,
  keyFromPem,
  keyToPem,
  readCertificate,
} from '../../../protocol/identity/identity.ts'
import { UserError } from '../../../runtime/runtime.ts'
import type { ClusterAdmin } from '../../context/context.ts'

export const ETCD_CA_SECRET = 'sealane-etcd-ca'

interface Init {
  readonly namespace: string
  readonly nowMs: number
}

type Admin = Pick<ClusterAdmin, 'get' | 'title'>

/** The Secrets to apply. Throws UserError if an existing Secret cannot be read. */
export async function etcdSecrets(admin: Admin, init: Init, signal: AbortSignal): Promise<readonly ManifestObject[]> {
  const { namespace, nowMs } = init
  const read = (name: string) => readSecret(admin, { namespace, name }, signal)
  const [kept, server, client] = [
    await read(ETCD_CA_SECRET),
    await read(ETCD_SERVER_SECRET),
    await read(ETCD_CLIENT_SECRET),
  ]
  // Without the Secret of the authority, the other two belong to another issuer, such as cert-manager, which renews
  // them.
  if (kept === undefined && server !== undefined && client !== undefined) return []
  if (kept === undefined && (server ?? client) !== undefined) {
    const [there, missing] =
      server === undefined ? [ETCD_CLIENT_SECRET, ETCD_SERVER_SECRET] : [ETCD_SERVER_SECRET, ETCD_CLIENT_SECRET]
    throw new UserError(`${admin.title}: Secret ${namespace}/${there} exists, but ${missing} does not`, {
      hint: `create ${missing} from the same authority, or delete ${there}; nothing was changed`,
    })
  }
  const ca = kept === undefined ? await createEtcdCa(nowMs) : authorityOf(kept, `Secret ${namespace}/${ETCD_CA_SECRET}`)
  const made: ManifestObject[] = []
  if (kept === undefined) {
    made.push(
      secretObject(namespace, ETCD_CA_SECRET, {
        'ca.crt': certificateToPem(ca.certificate),
        'ca.key': keyToPem(ca.key),
      }),
    )
  }
  for (const [name, data, commonName, hosts] of [
    [ETCD_SERVER_SECRET, server, ETCD_SERVER_NAME, serverNames(namespace)],
    [ETCD_CLIENT_SECRET, client, 'sealane-broker', []],
  ] as const) {
    if (isFresh(data, ca, nowMs)) continue
    const { certificate, key } = await createEtcdCertificate(ca, { commonName, hosts, nowMs })
    const parts = { 'tls.crt': certificateToPem(certificate), 'tls.key': keyToPem(key) }
    made.push(secretObject(namespace, name, { 'ca.crt': certificateToPem(ca.certificate), ...parts }))
  }
  return made
}

/** Checks the Secret that the broker uses to log in to an external etcd. Throws UserError. */
export async function requireEtcdLogin(
  admin: Admin,
  { namespace, name, login }: { readonly namespace: string; readonly name: string; readonly login: string },
  signal: AbortSignal,
): Promise<void> {
  const data = await readSecret(admin, { namespace, name }, signal)
  const wanted = ['ca.crt', ...(login === 'password' ? ['password'] : ['tls.crt', 'tls.key'])]
  const missing = wanted.filter((key) => (data?.[key] ?? '') === '')
  if (missing.length === 0) return
  const files = wanted.map((key) => `--from-file=${key}`).join(' ')
  const what = data === undefined ? 'it does not exist' : `it lacks ${missing.join(' and ')}`
  throw new UserError(`${admin.title}: Secret ${namespace}/${name}, with which the broker logs in to etcd: ${what}`, {
    hint: `kubectl --namespace ${namespace} create secret generic ${name} ${files}\nnothing was changed`,
  })
}

function serverNames(namespace: string): readonly string[] {
  const [first = ''] = etcdHosts(namespace)
  const service = first.slice(first.indexOf('.') + 1)
  return [...etcdHosts(namespace), service, `*.${service}`, 'localhost']
}

function isFresh(data: Readonly<Record<string, string>> | undefined, ca: Identity, nowMs: number): boolean {
  if (data?.['ca.crt'] !== certificateToPem(ca.certificate)) return false
  const [certificate] = certificatesFromPem(data['tls.crt'] ?? '')
  if (certificate === undefined || data['tls.key'] === undefined) return false
  const { notBeforeMs, notAfterMs } = readCertificate(certificate)
  return notAfterMs - nowMs > (notAfterMs - notBeforeMs) / 2
}

function authorityOf(data: Readonly<Record<string, string>>, place: string): Identity {
  try {
    const [certificate] = certificatesFromPem(data['ca.crt'] ?? '')
    if (certificate !== undefined) return { certificate, key: keyFromPem(data['ca.key'] ?? '') }
  } catch {
    // The error is thrown below.
  }
  throw new UserError(`${place}: expected ca.crt and ca.key in PEM`, { hint: 'nothing was changed' })
}

async function readSecret(
  admin: Admin,
  { namespace, name }: { readonly namespace: string; readonly name: string },
  signal: AbortSignal,
): Promise<Readonly<Record<string, string>> | undefined> {
  const found = await admin.get({ apiVersion: 'v1', kind: 'Secret', namespace, name }, signal)
  if (found === undefined) return undefined
  const data = (found['data'] ?? {}) as Readonly<Record<string, string>>
  return Object.fromEntries(Object.entries(data).map(([key, text]) => [key, Buffer.from(text, 'base64').toString()]))
}

function secretObject(namespace: string, name: string, parts: Readonly<Record<string, string>>): ManifestObject {
  const data = Object.entries(parts).map(([key, text]) => [key, Buffer.from(text).toString('base64')] as const)
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name, namespace, labels: partLabels('etcd') },
    type: 'Opaque',
    data: Object.fromEntries(data),
  }
}
