/**
 * Stores a member's identity in the Secret `sealane-identity` of a Kubernetes cluster. Before the join, the Secret
 * holds the token. The agent adds the key for the join, and then replaces both by the identity.
 *
 * The token may be in another Secret instead, which another tool owns (GitOps). That one is only read, so that it never
 * differs from what the tool wants. A token that has given an identity counts as none: the Secret of the identity notes
 * it.
 */
import { type KeyObject, createHash } from 'node:crypto'
import { type ReasonCode, knownReason } from '../../model/reasons/reasons.ts'
import {
  ACCESS_PART,
  IDENTITY_PARTS,
  type IdentityPart,
  type IdentityStore,
  decodeAccess,
  decodeMemberIdentity,
  encodeAccess,
  encodeMemberIdentity,
} from './member-files.ts'
import { createKey, keyFromPem, keyToPem } from '../identity/identity.ts'
import type { JoinStore } from './join.ts'

export const TOKEN_PART = 'token'
export const JOINING_KEY_PART = 'joining.key'
/** Annotation with the reason why the agent could not join or leave yet, for `sealane join` and for users. */
export const PROBLEM_ANNOTATION = 'sealane.io/join-problem'
/** Annotation with the reason code of the problem (model/reasons/). */
export const REASON_ANNOTATION = 'sealane.io/join-problem-reason'
/** Annotation that identifies the refused attempt. Set if a retry cannot succeed. */
export const REFUSED_ANNOTATION = 'sealane.io/join-refused'

/** Annotation that identifies the token of the other Secret that has given this cluster its identity. */
export const USED_ANNOTATION = 'sealane.io/join-used'

/**
 * Annotation beside a token whose installer could not ask the broker what the join changes for other members. The agent
 * asks before it joins. If the join changes anything, the agent waits until this annotation is removed. Any value
 * counts.
 */
export const ASK_FIRST_ANNOTATION = 'sealane.io/join-asks-first'

/** Removes the annotations of a problem. */
export const NO_PROBLEM: Readonly<Record<string, null>> = {
  [PROBLEM_ANNOTATION]: null,
  [REASON_ANNOTATION]: null,
  [REFUSED_ANNOTATION]: null,
}

/** Changes that remove a token, with what its installer noted beside it. */
const NO_TOKEN = { data: { [TOKEN_PART]: null }, annotations: { [ASK_FIRST_ANNOTATION]: null } }

/** Access to one Secret. A value of null removes the key or the annotation. */
export interface SecretAccess {
  /** Name for messages, `Secret namespace/name`. */
  readonly place: string
  /** Returns undefined if the Secret does not exist. */
  read(): Promise<SecretContent | undefined>
  /** Creates the Secret if it does not exist. */
  change(change: SecretChange): Promise<void>
}

export interface SecretContent {
  /** Decoded as UTF-8. */
  readonly data: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
}

export interface SecretChange {
  readonly data?: Readonly<Record<string, string | null>>
  readonly annotations?: Readonly<Record<string, string | null>>
}

/**
 * Returns the problem that the Secret reports. `final` is true if it concerns the stored token with these settings and
 * a retry cannot succeed. It is false for a problem of other settings, which an earlier agent that still runs may have
 * reported.
 */
export function joinProblem(
  content: SecretContent | undefined,
  settings: string,
): { readonly text: string; readonly reason?: ReasonCode; readonly final: boolean } | undefined {
  const text = content?.annotations[PROBLEM_ANNOTATION]
  if (content === undefined || text === undefined) return undefined
  const token = content.data[TOKEN_PART]
  const reason = knownReason(content.annotations[REASON_ANNOTATION])
  const final = token !== undefined && content.annotations[REFUSED_ANNOTATION] === attempt(token, settings)
  return { text, ...(reason === undefined ? {} : { reason }), final }
}

/** Identifies an attempt. It does not disclose the token, because its secret has 256 bits. */
function attempt(token: string, settings: string): string {
  return createHash('sha256').update(`${token.trim()}\n${settings}`).digest('hex').slice(0, 16)
}

export interface SecretIdentity extends IdentityStore, JoinStore {
  /** Removes an identity that the broker no longer accepts. A stored token stays. */
  dropIdentity(): Promise<void>
}

/**
 * `settings` is the text of the site file, because a refused token may work with other settings. `given` reads the token
 * that another tool owns; undefined if there is none.
 */
export function secretIdentity(
  secret: SecretAccess,
  settings = '',
  given: () => Promise<string | undefined> = () => Promise.resolve(undefined),
): SecretIdentity {
  const part = async (name: string): Promise<string | undefined> => (await secret.read())?.data[name]
  // Kept here as well: the Secret may be deleted and written again.
  let used: string | undefined
  const readIdentity = async (): Promise<SecretContent | undefined> => {
    const content = await secret.read()
    used = content?.annotations[USED_ANNOTATION] ?? used
    return content
  }
  const unused = async (): Promise<string | undefined> => {
    const text = await given()
    return text === undefined || text.trim() === '' || attempt(text, '') === used ? undefined : text
  }
  /** The note about the token of another tool with which this cluster has joined, just now or earlier. */
  const noteOfUse = async (): Promise<Readonly<Record<string, string>>> => {
    const { data = {} } = (await readIdentity()) ?? {}
    const isJoining = data[JOINING_KEY_PART] !== undefined && data[TOKEN_PART] === undefined
    const text = isJoining ? await unused() : undefined
    if (text !== undefined) used = attempt(text, '')
    return used === undefined ? {} : { [USED_ANNOTATION]: used }
  }
  return {
    place: secret.place,
    read: async () => {
      const data = (await readIdentity())?.data ?? {}
      return decodeMemberIdentity(identityParts(data), (name) => `${secret.place}: ${name}`)
    },
    write: async (identity) => {
      const note = await noteOfUse()
      await secret.change({
        data: { ...encodeMemberIdentity(identity), ...NO_TOKEN.data, [JOINING_KEY_PART]: null },
        annotations: { ...NO_PROBLEM, ...NO_TOKEN.annotations, ...note },
      })
    },
    // The Secret stays until Sealane is uninstalled, because a new token can be stored in it.
    remove: async () => {
      if ((await secret.read()) === undefined) return
      const parts = Object.fromEntries([...IDENTITY_PARTS, ACCESS_PART, JOINING_KEY_PART].map((name) => [name, null]))
      const annotations = { ...NO_PROBLEM, ...NO_TOKEN.annotations }
      await secret.change({ data: { ...parts, ...NO_TOKEN.data }, annotations })
    },
    access: async () => decodeAccess(await part(ACCESS_PART)),
    keepAccess: async (access) => {
      if ((await part('broker.json')) === undefined) return
      await secret.change({ data: { [ACCESS_PART]: encodeAccess(access) } })
    },
    dropIdentity: () => secret.change({ data: Object.fromEntries(IDENTITY_PARTS.map((name) => [name, null])) }),
    token: async () => (await readIdentity())?.data[TOKEN_PART] ?? (await unused()),
    key: async (): Promise<KeyObject> => {
      const kept = await part(JOINING_KEY_PART)
      if (kept !== undefined) return keyFromPem(kept)
      const key = createKey()
      await secret.change({ data: { [JOINING_KEY_PART]: keyToPem(key) } })
      return key
    },
    dropToken: async () => {
      const had = (await part(TOKEN_PART)) !== undefined
      const note = ASK_FIRST_ANNOTATION in ((await secret.read())?.annotations ?? {})
      if (had || note) await secret.change(NO_TOKEN)
      return had
    },
    problem: async (problem) => {
      if (problem === undefined) {
        const said = (await secret.read())?.annotations ?? {}
        if (Object.keys(NO_PROBLEM).some((name) => name in said)) await secret.change({ annotations: NO_PROBLEM })
        return
      }
      const { text, reason, refused } = problem
      await secret.change({
        annotations: {
          [PROBLEM_ANNOTATION]: text,
          [REASON_ANNOTATION]: reason ?? null,
          [REFUSED_ANNOTATION]: refused === undefined ? null : attempt(refused, settings),
        },
      })
    },
    asksFirst: async () => ASK_FIRST_ANNOTATION in ((await secret.read())?.annotations ?? {}),
    isRefused: async (token) => (await secret.read())?.annotations[REFUSED_ANNOTATION] === attempt(token, settings),
  }
}

function identityParts(data: Readonly<Record<string, string>>): Partial<Record<IdentityPart, string>> {
  const parts: Partial<Record<IdentityPart, string>> = {}
  for (const name of IDENTITY_PARTS) if (data[name] !== undefined) parts[name] = data[name]
  return parts
}
