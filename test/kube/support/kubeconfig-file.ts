/** Kubeconfig files: written for the tests' users, and read back into what a connection needs. */
import { readFileSync, writeFileSync } from 'node:fs'
import { parse, stringify } from 'yaml'
import type { CertificateAndKey } from './cluster-certificates.ts'

/** How a user shows who it is. */
export type Credentials = CertificateAndKey | { readonly token: string }

export interface Connection {
  /** https://address:port */
  readonly url: string
  readonly ca: string
  readonly credentials: Credentials
}

export interface KubeconfigInit extends Connection {
  readonly cluster: string
  readonly user: string
}

/** Writes a kubeconfig with one context, named like the cluster, with everything inline. Mode 0600. Gives the path. */
export function writeKubeconfig(path: string, init: KubeconfigInit): string {
  const { cluster, user, url, ca, credentials } = init
  const shown =
    'token' in credentials
      ? { token: credentials.token }
      : {
          'client-certificate-data': base64(credentials.certificate),
          'client-key-data': base64(credentials.key),
        }
  const text = stringify(
    {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: cluster, cluster: { server: url, 'certificate-authority-data': base64(ca) } }],
      users: [{ name: user, user: shown }],
      contexts: [{ name: cluster, context: { cluster, user } }],
      'current-context': cluster,
    },
    { lineWidth: 0 },
  )
  writeFileSync(path, text, { mode: 0o600 })
  return path
}

export interface ContextFile {
  /** Name for the context, its cluster and its user. */
  readonly context: string
  /** A file that writeKubeconfig() wrote. */
  readonly path: string
}

/** Writes one file with all of them; the first is the current context. Mode 0600. Gives the path. */
export function mergeKubeconfigs(path: string, files: readonly ContextFile[]): string {
  const parts = files.map((file) => {
    const { clusters, users } = parse(readFileSync(file.path, 'utf8')) as KubeconfigShape
    return { name: file.context, cluster: clusters[0].cluster, user: users[0].user }
  })
  const text = stringify(
    {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: parts.map(({ name, cluster }) => ({ name, cluster })),
      users: parts.map(({ name, user }) => ({ name, user })),
      contexts: parts.map(({ name }) => ({ name, context: { cluster: name, user: name } })),
      'current-context': parts[0]?.name ?? '',
    },
    { lineWidth: 0 },
  )
  writeFileSync(path, text, { mode: 0o600 })
  return path
}

interface KubeconfigShape {
  readonly clusters: readonly [{ cluster: Record<string, string> }]
  readonly users: readonly [{ user: Record<string, string> }]
}

/** Reads a file that writeKubeconfig() wrote. */
export function readKubeconfig(path: string): Connection {
  const { clusters, users } = parse(readFileSync(path, 'utf8')) as KubeconfigShape
  const cluster = clusters[0].cluster
  const user = users[0].user
  const token = user['token']
  return {
    url: cluster['server'] ?? '',
    ca: plain(cluster['certificate-authority-data']),
    credentials:
      token === undefined
        ? { certificate: plain(user['client-certificate-data']), key: plain(user['client-key-data']) }
        : { token },
  }
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}

function plain(text = ''): string {
  return Buffer.from(text, 'base64').toString()
}
