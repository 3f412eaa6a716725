/**
 * Which of several hubs of a plain site acts. The state of one hub, and what each message and the time make of it: the
 * election and the lease of Raft (Ongaro and Ousterhout 2014, sections 5.2, 5.4 and 6), for a state that is sent as a
 * whole or as its differences. Pure.
 *
 * With three hubs and more, a majority decides. With two, none takes over by itself, because a majority of two does not
 * survive a loss: the operator promotes the other one. One hub acts alone.
 */

/** How new the files of a hub are. The term counts first. */
export interface Version {
  readonly term: number
  readonly index: number
}

export type TermRole =
  | { readonly is: 'following' }
  /** `isTrial`: it only asks whether it would be elected, so that a hub that nobody reaches does not raise the term. */
  | { readonly is: 'asking'; readonly isTrial: boolean; readonly sinceMs: number; readonly votes: ReadonlySet<string> }
  | {
      readonly is: 'acting'
      /** Its first version. It serves once that one is confirmed: so all confirmed versions before it are, too. */
      readonly first: Version
      /** When the last message was sent that a hub has accepted, in monotonic milliseconds. */
      readonly heardMs: ReadonlyMap<string, number>
      readonly stored: ReadonlyMap<string, Version>
      /** The hubs that were called in this term, whether they answered or not. */
      readonly called: ReadonlySet<string>
    }

/** Hubs are named by the `address:port` at which they listen. */
export interface TermState {
  readonly own: string
  readonly term: number
  readonly votedFor: string | undefined
  readonly version: Version
  /** The hub that acts, as far as this one knows. */
  readonly leader: string | undefined
  /** When it last heard from the acting hub or was started, in monotonic milliseconds. */
  readonly heardMs: number
  readonly role: TermRole
}

/** What survives a restart. */
export interface StoredTerm {
  readonly term: number
  readonly votedFor?: string | undefined
  readonly version: Version
  /** Whether it acts in this term. */
  readonly acts: boolean
}

export interface VoteRequest {
  readonly term: number
  readonly hub: string
  readonly version: Version
  readonly isTrial: boolean
}

/** The acting hub serves while a majority has accepted a message that it sent within this time. */
export const TERM_LEASE_MS = 5000
/** Others elect no one within this time after its last message: longer, since clocks of machines differ a little. */
export const ELECTION_MS = 6000
/** Hubs ask one after the other, in the order of the site file. */
const STAGGER_MS = 700
const ASK_AGAIN_MS = 2000

export function startTerm(own: string, stored: StoredTerm | undefined, nowMs: number): TermState {
  const { term = 0, version = { term: 0, index: 0 }, votedFor } = stored ?? {}
  return { own, term, votedFor, version, leader: undefined, heardMs: nowMs, role: { is: 'following' } }
}

export function isOlder(a: Version, b: Version): boolean {
  return a.term === b.term ? a.index < b.index : a.term < b.term
}

/** Asks for votes when the acting hub has been silent for long enough. `members` are in the order of the site file. */
export function whenSilent(state: TermState, members: readonly string[], nowMs: number): TermState {
  const { own, role, heardMs } = state
  const rank = members.indexOf(own)
  if (role.is === 'acting' || rank < 0 || members.length === 2) return state
  if (members.length === 1) return acting({ ...state, term: state.term + 1, votedFor: own })
  const isDue =
    role.is === 'asking'
      ? nowMs - role.sinceMs >= ASK_AGAIN_MS + rank * STAGGER_MS
      : nowMs - heardMs >= ELECTION_MS + rank * STAGGER_MS
  if (!isDue) return state
  return { ...state, leader: undefined, role: { is: 'asking', isTrial: true, sinceMs: nowMs, votes: new Set([own]) } }
}

/** The request that an asking hub sends; undefined if it does not ask. */
export function voteRequest({ own, term, version, role }: TermState): VoteRequest | undefined {
  if (role.is !== 'asking') return undefined
  return { hub: own, version, isTrial: role.isTrial, term: role.isTrial ? term + 1 : term }
}

/** The hub acts in a new term without an election: the only hub of the site, or one that the operator has promoted. */
export function promoted(state: TermState): TermState {
  return acting({ ...state, term: state.term + 1, votedFor: state.own })
}

/** The acting hub follows again, if the others are a majority without it and have answered lately: one of them acts next. */
export function resigned(state: TermState, members: readonly string[], nowMs: number): TermState {
  const { role, own, term } = state
  if (role.is !== 'acting') return state
  const isThere = (member: string): boolean =>
    member !== own && nowMs - (role.heardMs.get(member) ?? -Infinity) < TERM_LEASE_MS
  if (!isMajority(members, isThere)) return state
  return { ...follow(state, term), leader: undefined, heardMs: nowMs }
}

/**
 * One of at most two hubs continues in the term in which it acted before a restart, unless it has already heard from
 * another one that acts: what it stored is older than that.
 */
export function resumed(state: TermState, { term, acts }: StoredTerm): TermState {
  return acts && state.term === term && state.leader === undefined ? acting(state) : state
}

export function onVoteRequest(
  state: TermState,
  members: readonly string[],
  request: VoteRequest,
  nowMs: number,
): { readonly state: TermState; readonly granted: boolean } {
  const { term, hub, version, isTrial } = request
  const refused = { state, granted: false }
  if (!members.includes(hub) || members.length < 3) return refused
  if (term < state.term) return refused
  if (term === state.term) return isTrial ? refused : { state, granted: state.votedFor === hub }
  if (isServing(state, members, nowMs) || nowMs - state.heardMs < ELECTION_MS) return refused
  const granted = !isOlder(version, state.version)
  if (isTrial) return { state, granted }
  const next = follow(state, term)
  if (!granted) return { state: next, granted }
  return { state: { ...next, votedFor: hub }, granted }
}

/** An answer to the request that the hub sent. */
export function onVote(
  state: TermState,
  members: readonly string[],
  request: VoteRequest,
  answer: { readonly from: string; readonly term: number; readonly granted: boolean },
  nowMs: number,
): TermState {
  if (answer.term > state.term && !(answer.granted && request.isTrial)) return follow(state, answer.term)
  const { role, own } = state
  const now = voteRequest(state)
  if (role.is !== 'asking' || !answer.granted || now?.term !== request.term || now.isTrial !== request.isTrial)
    return state
  const votes = new Set([...role.votes, answer.from])
  if (!isMajority(members, (member) => votes.has(member))) return { ...state, role: { ...role, votes } }
  if (!role.isTrial) return acting(state)
  const asking = { is: 'asking', isTrial: false, sinceMs: nowMs, votes: new Set([own]) } as const
  return { ...state, term: state.term + 1, votedFor: own, role: asking }
}

/** A message of a hub that says it acts. If it is not accepted, the answer carries the higher term. */
export function onLeader(
  state: TermState,
  members: readonly string[],
  { term, hub }: { readonly term: number; readonly hub: string },
  nowMs: number,
): { readonly state: TermState; readonly accepted: boolean } {
  if (term < state.term) return { state, accepted: false }
  // Both of two hubs were promoted at the same time: the first of the site file acts.
  const isRival = term === state.term && state.role.is === 'acting'
  if (isRival && members.indexOf(state.own) < members.indexOf(hub)) return { state, accepted: false }
  return { state: { ...follow(state, term), leader: hub, heardMs: nowMs }, accepted: true }
}

/** An answer to a message of the acting hub; `sentMs` is when that was sent. Undefined: there was none. */
export function onAnswer(
  state: TermState,
  from: string,
  sentTerm: number,
  answer: { readonly term: number; readonly version: Version; readonly sentMs: number } | undefined,
): TermState {
  if (answer !== undefined && answer.term > state.term) return follow(state, answer.term)
  const { role } = state
  if (role.is !== 'acting' || sentTerm !== state.term) return state
  const called = new Set([...role.called, from])
  if (answer === undefined || answer.term !== state.term) return { ...state, role: { ...role, called } }
  const heardMs = new Map(role.heardMs).set(from, Math.max(answer.sentMs, role.heardMs.get(from) ?? -Infinity))
  const stored = new Map(role.stored).set(from, answer.version)
  return { ...state, role: { ...role, called, heardMs, stored } }
}

/** The files of the acting hub have changed. */
export function onChange(state: TermState): TermState {
  const { role, term, version } = state
  return role.is === 'acting' ? { ...state, version: { term, index: version.index + 1 } } : state
}

/** A hub that follows has stored all files of a version. */
export function onStored(state: TermState, version: Version): TermState {
  return { ...state, version }
}

/** Whether it may answer nodes and take their writes now. */
export function isServing(state: TermState, members: readonly string[], nowMs: number): boolean {
  const { role, own } = state
  if (role.is !== 'acting' || !members.includes(own)) return false
  if (members.length <= 2) return members.every((member) => member === own || role.called.has(member))
  const isRecent = (member: string): boolean =>
    member === own || nowMs - (role.heardMs.get(member) ?? -Infinity) < TERM_LEASE_MS
  return isMajority(members, isRecent) && isConfirmed(state, members, role.first)
}

/** Whether a version of the acting hub outlives it: a majority has stored it. */
export function isConfirmed({ own, role }: TermState, members: readonly string[], version: Version): boolean {
  if (role.is !== 'acting') return false
  if (members.length <= 2) return true
  const has = (member: string): boolean => {
    const stored = role.stored.get(member)
    return member === own || (stored !== undefined && !isOlder(stored, version))
  }
  return isMajority(members, has)
}

function isMajority(members: readonly string[], counts: (member: string) => boolean): boolean {
  return members.filter(counts).length * 2 > members.length
}

function acting(state: TermState): TermState {
  const { own, term, version } = state
  const first = { term, index: version.index + 1 }
  const none = { heardMs: new Map<string, number>(), stored: new Map<string, Version>(), called: new Set<string>() }
  return { ...state, version: first, leader: own, role: { is: 'acting', first, ...none } }
}

function follow(state: TermState, term: number): TermState {
  const isNew = term > state.term
  const votedFor = isNew ? undefined : state.votedFor
  return { ...state, term, votedFor, leader: isNew ? undefined : state.leader, role: { is: 'following' } }
}
