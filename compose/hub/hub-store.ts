/**
 * What the hub of a plain site keeps in the state folder, below `hub/`: the authority of the site, open invitations, and
 * the key of each node. The hub process and `sealane site invite` both use it.
 *
 *   authority.pem             private key and certificate, mode 0600
 *   invitations/<id>.json     hash of the secret, the node, the expiry; once used, the key that used it
 *   nodes/<name>.json         hash of the key whose certificates count; without it the node is refused
 *   removed/                  where there are several hubs: SharedMarks
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { mkdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import type { EnrolRequest, HubTls, Identified } from '../../kubeapi/remote/remote.ts'
import { isDnsSubdomain } from '../../model/model.ts'
import {
  CsrError,
  certificateToPem,
  certificatesFromPem,
  createHubCertificate,
  createSiteCa,
  csrKeyHash,
  hashTokenSecret,
  issueNodeCertificate,
  keyFromPem,
  keyToPem,
  publicKeyHash,
  readNodeCertificate,
} from '../../protocol/identity/identity.ts'
import { type Clock, SerialQueue } from '../../reconcile/reconcile.ts'
import { UserError, createFile, replaceFile } from '../../runtime/runtime.ts'
import { SharedMarks } from './shared-marks.ts'

export interface HubStoreInit {
  /** The state folder of the site. */
  readonly state: string
  /** The name of the site. */
  readonly site: string
}

interface Authority {
  readonly certificate: Uint8Array
  readonly key: ReturnType<typeof keyFromPem>
}

interface Invitation {
  readonly node: string
  readonly secretHash: string
  readonly expiresAtMs: number
  readonly isHub?: boolean
  /** Hash of the key that it was used for. The same key may use it again, since an answer can be lost. */
  readonly usedBy?: string
}

const TOKEN = /^([0-9a-f]{10})\.([A-Za-z0-9_-]{43})$/

export class HubStore {
  readonly #clock: Pick<Clock, 'now'>
  readonly #init: HubStoreInit
  readonly #folder: string
  readonly #authority: Authority
  readonly #queue = new SerialQueue()

  private constructor(clock: Pick<Clock, 'now'>, init: HubStoreInit, authority: Authority) {
    this.#clock = clock
    this.#init = init
    this.#folder = join(init.state, 'hub')
    this.#authority = authority
  }

  /**
   * Creates the authority if there is none. Throws UserError if it cannot be read or written, or if the disk has lost that of
   * several hubs: another one would take the place of theirs.
   */
  static async open(clock: Pick<Clock, 'now'>, init: HubStoreInit): Promise<HubStore> {
    const file = join(init.state, 'hub', 'authority.pem')
    try {
      await mkdir(join(init.state, 'hub'), { recursive: true, mode: 0o700 })
      const present = await readAuthority(file)
      if (present !== undefined) return new HubStore(clock, init, present)
      if (hasOthers(init.state)) throw new Error('it is missing: copy it from another hub of the site')
      const made = await createSiteCa(init.site, clock.now())
      await createFile(file, `${keyToPem(made.key)}${certificateToPem(made.certificate)}`)
      // Another process may have been first.
      return new HubStore(clock, init, (await readAuthority(file)) ?? made)
    } catch (cause) {
      throw new UserError(`${file}: cannot be used: ${(cause as Error).message}`, { cause })
    }
  }

  /** The certificate of the authority, in PEM. */
  get certificateAuthority(): string {
    return certificateToPem(this.#authority.certificate)
  }

  /** A new certificate for the hub itself. The key stays in this process. */
  async serverTls(): Promise<HubTls> {
    const { key, certificate } = await createHubCertificate(this.#authority, this.#clock.now())
    return { key: keyToPem(key), cert: certificateToPem(certificate), ca: this.certificateAuthority }
  }

  /** Gives the token of a new invitation. Earlier ones for the node end. `isHub`: as one of several hubs. */
  async invite(node: string, validMs: number, isHub = false): Promise<string> {
    await this.#forgetInvitations(node)
    const id = randomBytes(5).toString('hex')
    const secret = randomBytes(32).toString('base64url')
    const expiresAtMs = this.#clock.now() + validMs
    await this.#write('invitations', id, {
      node,
      secretHash: hashTokenSecret(secret),
      expiresAtMs,
      ...(isHub ? { isHub } : {}),
    } satisfies Invitation)
    return `${id}.${secret}`
  }

  /** Gives the node that has the folder of the site its certificate as one of several hubs, in PEM, for a CSR. */
  async admitOwn(node: string, csr: string): Promise<string> {
    const request = Buffer.from(csr, 'base64')
    const certificate = await this.#issue(node, request, true)
    await this.#write('nodes', node, { keyHash: await hashOf(request), isHub: true })
    return certificate
  }

  /** From now on the hub refuses the node. False if it was neither a node nor invited. */
  async revoke(node: string): Promise<boolean> {
    const invited = await this.#forgetInvitations(node)
    const isKnown = this.#node(node) !== undefined
    if (isKnown) await this.#remove('nodes', node)
    return invited || isKnown
  }

  /** The names of the nodes that have a certificate, sorted. */
  nodes(): readonly string[] {
    return namesIn(join(this.#folder, 'nodes'))
  }

  /** Takes a certificate (DER) that the authority has issued. */
  identify(certificate: Uint8Array): Identified {
    const facts = readNodeCertificate(certificate)
    if (facts?.site !== this.#init.site) return { refused: 'the certificate belongs to no node of this site' }
    const { node, isHub, key, notAfterMs } = facts
    if (this.#clock.now() >= notAfterMs) {
      const ended = new Date(notAfterMs).toISOString()
      return { refused: `the certificate of node ${node} ended at ${ended}: invite the node again` }
    }
    const known = this.#node(node)
    if (known?.keyHash !== publicKeyHash(key) || known.isHub !== isHub)
      return { refused: `node ${node} was revoked, or has been invited again since: invite it again` }
    return { node, isHub }
  }

  /** Gives a certificate in PEM. Throws ClusterApiError Forbidden and Invalid. */
  enrol({ token, node, csr }: EnrolRequest): Promise<string> {
    return this.#queue.run(async () => {
      const [, id = '', secret = ''] = TOKEN.exec(token) ?? []
      const invitation = id === '' ? undefined : await this.#invitation(id).catch(() => undefined)
      const isRight = invitation !== undefined && isSame(hashTokenSecret(secret), invitation.secretHash)
      // One text for all of these: a stranger learns nothing about invitations.
      if (!isRight || invitation.node !== node || this.#clock.now() >= invitation.expiresAtMs)
        throw new ClusterApiError('Forbidden', `the invitation of node ${node.slice(0, 300)} is not valid (any more)`)
      const request = Buffer.from(csr, 'base64')
      const keyHash = await hashOf(request)
      if (invitation.usedBy !== undefined && invitation.usedBy !== keyHash)
        throw new ClusterApiError('Forbidden', `the invitation of node ${node} was used already, for another key`)
      await this.#write('invitations', id, { ...invitation, usedBy: keyHash })
      const isHub = invitation.isHub === true
      const certificate = await this.#issue(node, request, isHub)
      await this.#write('nodes', node, isHub ? { keyHash, isHub } : { keyHash })
      return certificate
    })
  }

  /** Throws ClusterApiError Forbidden if the request is for another key than the node has. */
  async renew(node: string, csr: string): Promise<string> {
    const request = Buffer.from(csr, 'base64')
    const known = this.#node(node)
    if (known === undefined || (await hashOf(request)) !== known.keyHash)
      throw new ClusterApiError('Forbidden', `node ${node} has another key: a new key needs an invitation`)
    return this.#issue(node, request, known.isHub)
  }

  async #issue(node: string, csr: Uint8Array, isHub: boolean): Promise<string> {
    const init = { site: this.#init.site, node, csr, isHub, nowMs: this.#clock.now() }
    return certificateToPem(await issueNodeCertificate(this.#authority, init))
  }

  #node(node: string): { readonly keyHash: string; readonly isHub: boolean } | undefined {
    if (!isDnsSubdomain(node)) return undefined
    try {
      const value = JSON.parse(readFileSync(this.#path('nodes', node), 'utf8')) as Partial<Record<string, unknown>>
      const { keyHash, isHub } = value
      return typeof keyHash === 'string' ? { keyHash, isHub: isHub === true } : undefined
    } catch {
      // What cannot be read admits no node.
      return undefined
    }
  }

  async #invitation(id: string): Promise<Invitation | undefined> {
    const text = await readFile(this.#path('invitations', id), 'utf8').catch(() => undefined)
    if (text === undefined) return undefined
    const value = JSON.parse(text) as Partial<Invitation>
    const { node, secretHash, expiresAtMs } = value
    if (typeof node !== 'string' || typeof secretHash !== 'string' || typeof expiresAtMs !== 'number') return undefined
    return value as Invitation
  }

  async #forgetInvitations(node: string): Promise<boolean> {
    let found = false
    for (const id of namesIn(join(this.#folder, 'invitations'))) {
      const invitation = await this.#invitation(id).catch(() => undefined)
      const isOver = invitation === undefined || this.#clock.now() >= invitation.expiresAtMs
      if (!isOver && invitation.node !== node) continue
      found ||= invitation?.node === node
      await this.#remove('invitations', id)
    }
    return found
  }

  /** Throws what the disk says, but removes the file in any case: this hub must not admit what was revoked. */
  async #remove(room: 'invitations' | 'nodes', name: string): Promise<void> {
    try {
      if (hasOthers(this.#init.state)) await new SharedMarks(this.#init.state).add(`hub/${room}/${name}.json`)
    } finally {
      await rm(this.#path(room, name), { force: true })
    }
  }

  async #write(room: 'invitations' | 'nodes', name: string, value: unknown): Promise<void> {
    await mkdir(join(this.#folder, room), { recursive: true, mode: 0o700 })
    await replaceFile(this.#path(room, name), `${JSON.stringify(value)}\n`)
  }

  #path(room: 'invitations' | 'nodes', name: string): string {
    return join(this.#folder, room, `${name}.json`)
  }
}

/** Whether this is the folder of one of several hubs. */
function hasOthers(state: string): boolean {
  return existsSync(join(state, 'hub', 'members.json'))
}

async function readAuthority(file: string): Promise<Authority | undefined> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  })
  if (text === undefined) return undefined
  const [certificate] = certificatesFromPem(text)
  if (certificate === undefined) return undefined
  return { certificate, key: keyFromPem(text.slice(0, text.indexOf('-----BEGIN CERTIFICATE'))) }
}

async function hashOf(csr: Uint8Array): Promise<string> {
  try {
    return await csrKeyHash(csr)
  } catch (error) {
    if (error instanceof CsrError) throw new ClusterApiError('Invalid', error.message)
    throw error
  }
}

function isSame(a: string, b: string): boolean {
  const hash = (text: string): Buffer => createHash('sha256').update(text).digest()
  return timingSafeEqual(hash(a), hash(b))
}

function namesIn(folder: string): string[] {
  try {
    const names = readdirSync(folder).filter((name) => name.endsWith('.json') && !name.startsWith('.'))
    return names.map((name) => name.slice(0, -'.json'.length)).sort()
  } catch {
    return []
  }
}
