/** A context of a kubeconfig as a ServerAccess. */
import { readFile } from 'node:fs/promises'
import type { RequestOptions } from 'node:https'
import type { Cluster, Context, User } from '@kubernetes/client-node/dist/config_types.js'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type Proxy, parseProxy, proxyChoice } from '../../runtime/proxy/proxy.ts'
import { UserError, checkReadable } from '../../runtime/runtime.ts'
import { type ExecConfig, pluginLogin } from './credential-plugin.ts'
import { targetOf } from './http/proxied-agent.ts'
import { type Credentials, type RequestHeaders, type ServerAccess, TokenFile } from './server-access.ts'

/** Adds the credentials of a login method: headers, sometimes a certificate. */
export interface Login {
  apply(options: RequestOptions, signal: AbortSignal): Promise<void>
  forget(): void
}

interface AccessDeps {
  readonly clock: Clock
  readonly env: Readonly<Record<string, string | undefined>>
}

/** Throws UserError if the context, or what it refers to, does not exist. */
export async function kubeconfigAccess(
  { clock, env }: AccessDeps,
  config: Kubeconfig,
  contextName: string | undefined,
): Promise<ServerAccess> {
  const where = `kubeconfig ${config.paths.join(', ')}`
  const context = chosenContext(config, contextName, where)
  const named = `${where}: context ${JSON.stringify(context.name)}`
  const cluster = config.clusters.find(({ name }) => name === context.cluster)
  if (cluster === undefined)
    throw new UserError(`${named} names the cluster ${JSON.stringify(context.cluster)}, which does not exist`)
  const user = config.users.find(({ name }) => name === context.user)
  if (user === undefined)
    throw new UserError(`${named} names the user ${JSON.stringify(context.user)}, which does not exist`)
  if (!URL.canParse(cluster.server) || !/^https?:/.test(cluster.server)) {
    throw new UserError(`${named}: cluster.server ${JSON.stringify(cluster.server)}: expected an https URL`)
  }
  const impersonation = user.impersonation()
  const login = needsWholeClient(user) ? await wholeClient(cluster, user) : plainLogin(clock, cluster, user)
  const server = new URL(cluster.server)
  const proxy = proxyTo(server, cluster, { field: `${named}: cluster.proxy-url`, env })
  return {
    server,
    ...(proxy === undefined ? {} : { proxy }),
    namespace: context.namespace,
    contextName: context.name,
    title: `context ${JSON.stringify(context.name)} of ${config.paths.join(', ')}`,
    credentials: async (signal) => credentialsFrom(await loggedIn(login, cluster, user, signal), impersonation),
    forget: () => login.forget(),
  }
}

function chosenContext(config: Kubeconfig, name: string | undefined, where: string): Context {
  const known = config.contexts.map((context) => context.name).join(', ')
  const list = known === '' ? 'it has none' : `it has: ${known}`
  const wanted = name ?? config.currentContext
  if (wanted === undefined)
    throw new UserError(`${where} has no current context`, { hint: `use --context NAME; ${list}` })
  const found = config.contexts.find((context) => context.name === wanted)
  if (found === undefined) throw new UserError(`${where} has no context ${JSON.stringify(wanted)}; ${list}`)
  return found
}

/** As kubectl: proxy-url precedes the environment, and NO_PROXY is about the environment only. */
function proxyTo(
  server: URL,
  { proxyUrl }: Cluster,
  { field, env }: { readonly field: string; readonly env: AccessDeps['env'] },
): Proxy | undefined {
  if (proxyUrl !== undefined && proxyUrl !== '') return parseProxy(proxyUrl, field)
  return proxyChoice(env, server.protocol === 'http:' ? 'http' : 'https')(targetOf(server))
}

/** Legacy OIDC and cloud plugins. */
function needsWholeClient(user: KubeconfigUser): boolean {
  return user.authProvider !== null && user.authProvider !== undefined
}

/** It only logs in: the connections are ours, and so are certificates and the proxy. */
async function wholeClient({ proxyUrl: _proxy, ...cluster }: Cluster, user: KubeconfigUser): Promise<Login> {
  const { KubeConfig } = await import('@kubernetes/client-node/dist/config.js')
  const make = (): InstanceType<typeof KubeConfig> => {
    const config = new KubeConfig()
    config.loadFromClusterAndUser(cluster, user)
    return config
  }
  let config = make()
  return {
    apply: (options) => config.applyToHTTPSOptions(options),
    forget: () => {
      config = make()
    },
  }
}

function plainLogin(clock: Clock, cluster: KubeconfigCluster, user: KubeconfigUser): Login {
  if (user.exec !== null && user.exec !== undefined) {
    const exec = user.exec as ExecConfig
    return pluginLogin({ clock, folder: user.folder, exec, cluster })
  }
  const file = user.tokenFile === undefined ? undefined : new TokenFile(clock, user.tokenFile)
  return {
    apply: async (options) => {
      const token = (await file?.read()) ?? user.token
      if (token !== undefined) options.headers = { Authorization: `Bearer ${token}` }
      else if (user.username !== undefined) options.auth = `${user.username}:${user.password ?? ''}`
    },
    forget: () => file?.forget(),
  }
}

async function loggedIn(
  login: Login,
  cluster: Cluster,
  user: KubeconfigUser,
  signal: AbortSignal,
): Promise<RequestOptions> {
  signal.throwIfAborted()
  const options: RequestOptions = {}
  const [ca, cert, key] = await Promise.all([
    fileOrData(cluster.caFile, cluster.caData),
    fileOrData(user.certFile, user.certData),
    fileOrData(user.keyFile, user.keyData),
  ])
  if (ca !== undefined) options.ca = ca
  if (cert !== undefined) options.cert = cert
  if (key !== undefined) options.key = key
  if (cluster.skipTLSVerify) options.rejectUnauthorized = false
  if (cluster.tlsServerName !== undefined) options.servername = cluster.tlsServerName
  await login.apply(options, signal)
  return options
}

async function fileOrData(file: string | undefined, data: string | undefined): Promise<Buffer | undefined> {
  if (data !== undefined) return Buffer.from(data, 'base64')
  if (file === undefined) return undefined
  checkReadable(file)
  return readFile(file)
}

function credentialsFrom(options: RequestOptions, impersonation: Impersonation | undefined): Credentials {
  const headers: Record<string, string> = {}
  for (const [name, value] of Object.entries(options.headers ?? {})) {
    if (value !== undefined) headers[name.toLowerCase()] = String(value)
  }
  if (typeof options.auth === 'string') {
    headers['authorization'] = `Basic ${Buffer.from(options.auth).toString('base64')}`
  }
  return {
    headers: { ...headers, ...impersonationHeaders(impersonation) },
    ca: options.ca as Credentials['ca'],
    cert: options.cert as Credentials['cert'],
    key: options.key as Credentials['key'],
    servername: options.servername,
    rejectUnauthorized: options.rejectUnauthorized,
  }
}

// The content of a parsed kubeconfig.

/** One or more merged files; the first that defines a name takes precedence. */
export interface Kubeconfig {
  readonly paths: readonly string[]
  readonly clusters: readonly KubeconfigCluster[]
  readonly users: readonly KubeconfigUser[]
  readonly contexts: readonly Context[]
  readonly currentContext: string | undefined
}

/** client-node's Cluster, with a field that it omits. */
export interface KubeconfigCluster extends Cluster {
  /** What the cluster has for credential plugins. */
  readonly pluginConfig?: unknown
}

/** client-node's User, with fields that it omits. */
export interface KubeconfigUser extends User {
  /** Throws UserError. Evaluated only for the selected user. */
  readonly impersonation: () => Impersonation | undefined
  readonly tokenFile?: string | undefined
  /** The folder that relative paths in the file start from. */
  readonly folder: string
}

// User impersonation as in a kubeconfig (`as`, `as-uid`, `as-groups`, `as-user-extra`). Pure.

interface Impersonation {
  readonly user: string
  readonly uid: string | undefined
  readonly groups: readonly string[]
  readonly extra: Readonly<Record<string, readonly string[]>>
}

/**
 * Undefined if the user impersonates no one. Throws UserError with the field; `where` names the user of the kubeconfig.
 */
export function readImpersonation(user: Readonly<Record<string, unknown>>, where: string): Impersonation | undefined {
  const name = optionalHeader(user['as'], `${where}: as`)
  const uid = optionalHeader(user['as-uid'], `${where}: as-uid`)
  const groups = texts(user['as-groups'] ?? [], `${where}: as-groups`)
  const extra = lists(user['as-user-extra'] ?? {}, `${where}: as-user-extra`)
  if (name !== undefined) return { user: name, uid, groups, extra }
  const given = ['as-uid', 'as-groups', 'as-user-extra'].find((field) => user[field] !== undefined)
  if (uid === undefined && groups.length === 0 && Object.keys(extra).length === 0) return undefined
  throw new UserError(`${where}: ${given ?? ''} without as: an API server accepts them only with a user`)
}

/** One header for each group and each value, as the API server expects them. */
function impersonationHeaders(wanted: Impersonation | undefined): RequestHeaders {
  if (wanted === undefined) return {}
  const { user, uid, groups, extra } = wanted
  return {
    'impersonate-user': user,
    ...(uid === undefined ? {} : { 'impersonate-uid': uid }),
    ...(groups.length === 0 ? {} : { 'impersonate-group': [...groups] }),
    ...Object.fromEntries(
      Object.entries(extra).map(([key, values]) => [`impersonate-extra-${headerName(key)}`, [...values]]),
    ),
  }
}

/** Keys are usually paths. A header name allows fewer characters (RFC 9110 section 5.6.2); other bytes are escaped. */
function headerName(key: string): string {
  return [...Buffer.from(key, 'utf8')]
    .map((byte) => {
      const letter = String.fromCharCode(byte)
      return /[!#$&'*+.^_`|~0-9a-z-]/i.test(letter) ? letter : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
    })
    .join('')
}

function optionalHeader(value: unknown, field: string): string | undefined {
  if (value === undefined || value === null || value === '') return undefined
  if (typeof value === 'string') return headerValue(value, field)
  throw new UserError(`${field}: expected a text`)
}

/** The value is sent unchanged, and a header cannot contain other characters. */
function headerValue(text: string, field: string): string {
  if (/^[\t\x20-\x7e]*$/.test(text)) return text
  throw new UserError(`${field}: ${JSON.stringify(text)}: expected printable ASCII: it is sent as a header`)
}

function texts(value: unknown, field: string): readonly string[] {
  if (Array.isArray(value) && value.every((one) => typeof one === 'string')) {
    return value.map((one) => headerValue(one, field))
  }
  throw new UserError(`${field}: expected a list of texts`)
}

function lists(value: unknown, field: string): Readonly<Record<string, readonly string[]>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new UserError(`${field}: expected a list of texts for each key`)
  }
  return Object.fromEntries(Object.entries(value).map(([key, list]) => [key, texts(list, `${field}: ${key}`)]))
}
