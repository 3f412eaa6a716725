/**
 * Access through a kubeconfig, as kubectl reads it. The usual login methods (certificate, token, token file, password,
 * credential plugin) need only a few files of @kubernetes/client-node. If a context needs more (OIDC), the
 * whole KubeConfig is loaded, which costs 85 MB.
 */
import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { delimiter, dirname, join, resolve } from 'node:path'
import { ActionOnInvalid, newClusters, newContexts, newUsers } from '@kubernetes/client-node/dist/config_types.js'
import type { Clock } from '../../reconcile/reconcile.ts'
import { parseYaml } from '../kubeapi.ts'
import { UserError, checkReadable } from '../../runtime/runtime.ts'
import {
  type Kubeconfig,
  type KubeconfigCluster,
  type KubeconfigUser,
  kubeconfigAccess,
  readImpersonation,
} from './kubeconfig-access.ts'
import { type ServerAccess, podAccess } from './server-access.ts'

export interface AccessInit {
  /** Path of a kubeconfig. If absent: KUBECONFIG, then ~/.kube/config, then the pod's service account. */
  readonly kubeconfig?: string | undefined
  /** Name of a context. If absent: the current one. */
  readonly context?: string | undefined
  readonly env?: Readonly<Record<string, string | undefined>>
}

/** Throws UserError with the file and what is wrong with it. */
export async function openAccess(clock: Clock, init: AccessInit): Promise<ServerAccess> {
  const env = init.env ?? process.env
  const config = readKubeconfigs(chosenPaths(init.kubeconfig, env))
  if (config !== undefined) return await kubeconfigAccess({ clock, env }, config, init.context)
  const pod = init.context === undefined ? podAccess(clock, { env }) : undefined
  if (pod !== undefined) return pod
  throw new UserError('no kubeconfig: KUBECONFIG is not set, ~/.kube/config does not exist and this is no pod', {
    hint: 'use --kubeconfig PATH and --context NAME',
  })
}

/**
 * Returns the names of all contexts, and of the current one. Throws UserError as openAccess() does; empty without a
 * kubeconfig.
 */
export function contextNames(init: AccessInit): {
  readonly names: readonly string[]
  readonly current: string | undefined
} {
  const config = readKubeconfigs(chosenPaths(init.kubeconfig, init.env ?? process.env))
  return { names: config?.contexts.map(({ name }) => name) ?? [], current: config?.currentContext }
}

interface ChosenPaths {
  readonly paths: readonly string[]
  /** Whether missing files are skipped, as in kubectl. */
  readonly lenient: boolean
}

function chosenPaths(given: string | undefined, env: Readonly<Record<string, string | undefined>>): ChosenPaths {
  if (given !== undefined) return { paths: [given], lenient: false }
  const listed = (env['KUBECONFIG'] ?? '').split(delimiter).filter((path) => path !== '')
  if (listed.length > 0) return { paths: listed, lenient: listed.length > 1 }
  return { paths: [join(env['HOME'] ?? homedir(), '.kube', 'config')], lenient: true }
}

function readKubeconfigs({ paths, lenient }: ChosenPaths): Kubeconfig | undefined {
  const files = paths.flatMap((path) => readKubeconfig(path, lenient) ?? [])
  if (files.length === 0) return undefined
  return {
    paths: files.flatMap((file) => file.paths),
    clusters: files.flatMap((file) => file.clusters),
    users: files.flatMap((file) => file.users),
    contexts: files.flatMap((file) => file.contexts),
    currentContext: files.map((file) => file.currentContext).find((name) => name !== undefined),
  }
}

function readKubeconfig(path: string, lenient: boolean): Kubeconfig | undefined {
  const text = readText(path, lenient)
  if (text === undefined) return undefined
  try {
    const document = parseYaml(text) as Record<string, unknown> | null
    if (typeof document !== 'object' || document === null) throw new Error('expected a document of kind Config')
    const folder = dirname(resolve(path))
    const current = document['current-context']
    return {
      paths: [path],
      clusters: clustersOf(document['clusters'] ?? [], folder),
      users: usersOf(document['users'] ?? [], path),
      contexts: newContexts(document['contexts'] ?? []),
      currentContext: typeof current === 'string' && current !== '' ? current : undefined,
    }
  } catch (error) {
    throw new UserError(`kubeconfig ${path}: ${error instanceof Error ? firstLine(error.message) : String(error)}`)
  }
}

function readText(path: string, lenient: boolean): string | undefined {
  try {
    checkReadable(path)
    return readFileSync(path, 'utf8')
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    // The home folder of a container may belong to another user.
    if (lenient && (code === 'ENOENT' || code === 'EACCES' || code === 'ENOTDIR')) return undefined
    throw new UserError(code === 'ENOENT' ? `kubeconfig ${path} does not exist` : `kubeconfig ${path}: ${message}`)
  }
}

/** The extension that a credential plugin receives (client.authentication.k8s.io, Cluster.config). */
const PLUGIN_EXTENSION = 'client.authentication.k8s.io/exec'

function clustersOf(list: unknown, folder: string): KubeconfigCluster[] {
  const items = Array.isArray(list) ? (list as { name?: unknown; cluster?: { extensions?: unknown } | null }[]) : []
  return newClusters(list).map((cluster) => {
    const { extensions } = items.find(({ name }) => name === cluster.name)?.cluster ?? {}
    const all = Array.isArray(extensions) ? (extensions as ({ name?: unknown; extension?: unknown } | null)[]) : []
    const pluginConfig = all.find((one) => one?.name === PLUGIN_EXTENSION)?.extension
    return {
      ...cluster,
      ...(cluster.caFile === undefined ? {} : { caFile: resolve(folder, cluster.caFile) }),
      ...(pluginConfig === undefined ? {} : { pluginConfig }),
    }
  })
}

/** Skips invalid entries: they may not be the selected one. */
function usersOf(list: unknown, path: string): KubeconfigUser[] {
  const folder = dirname(resolve(path))
  const items = Array.isArray(list) ? (list as { name?: unknown; user?: Record<string, unknown> | null }[]) : []
  return newUsers(list, { onInvalidEntry: ActionOnInvalid.FILTER }).map((user) => {
    const raw = items.find(({ name }) => name === user.name)?.user ?? {}
    const tokenFile = raw['tokenFile']
    return {
      ...user,
      folder,
      impersonation: () => readImpersonation(raw, `kubeconfig ${path}: user ${JSON.stringify(user.name)}`),
      ...(typeof user.certFile === 'string' ? { certFile: resolve(folder, user.certFile) } : {}),
      ...(typeof user.keyFile === 'string' ? { keyFile: resolve(folder, user.keyFile) } : {}),
      ...(typeof tokenFile === 'string' ? { tokenFile: resolve(folder, tokenFile) } : {}),
    }
  })
}

function firstLine(text: string): string {
  return text.split('\n')[0] ?? text
}
