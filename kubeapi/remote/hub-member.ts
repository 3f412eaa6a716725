/**
 * One of several hubs of a plain site: takes part in the election, keeps the files of the others equal to those of the
 * acting hub, and tells when it acts itself. plan-term.ts decides; here are the messages, the disk and the time.
 */
import { createHash } from 'node:crypto'
import { type Clock, SerialQueue, orAborted, unlessAborted } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { ClusterApiError } from '../kubeapi.ts'
import type { HubConnection } from './hub-connection.ts'
import type { Changed } from './hub-server.ts'
import {
  type StoredTerm,
  type TermState,
  type Version,
  isConfirmed,
  isOlder,
  isServing,
  onAnswer,
  onChange,
  onLeader,
  onStored,
  onVote,
  onVoteRequest,
  promoted,
  resigned,
  resumed,
  startTerm,
  voteRequest,
  whenSilent,
} from './plan-term.ts'
import { MAX_FILE, MAX_OFFERS, type PeerAnswer, type PeerRequest, type Removals, type TreePath } from './wire.ts'

/** The files of a site on this machine that hubs keep equal. */
export interface SiteTree {
  /** The hubs that vote, as the files say. */
  readonly members: () => readonly string[]
  readonly setMembers: (members: readonly string[]) => Promise<void>
  /** The paths that were created, changed or removed since the last call; with `only`, among those of one object. */
  readonly changed: (only?: Changed) => Promise<readonly TreePath[]>
  /** Undefined if there is no such file. */
  readonly read: (path: TreePath) => Promise<Uint8Array | 'damaged' | undefined>
  /**
   * Removes the file if there is no content. Refuses a damaged content instead of a good one, and one that is older than the
   * file by what both say (see hasRefused()); gives 'newer' for the latter. Throws ClusterApiError Invalid for a path that is
   * not of the tree.
   */
  readonly write: (path: TreePath, content: Uint8Array | undefined) => Promise<'newer' | undefined>
  /** Whether write() kept a good file instead of the content with this hash. */
  readonly hasRefused: (path: TreePath, hash: string) => boolean
  /**
   * Writes a file that another hub still has, if it is damaged here, older by what both say, or missing though nobody meant
   * to remove it. Gives whether it did; changed() then finds it.
   */
  readonly restore: (path: TreePath, content: Uint8Array) => Promise<boolean>
  /** Whether nobody removes a file of this path without saying so. */
  readonly isKept: (path: TreePath) => boolean
  /** Whether each hub gets the marks of removals of this path. */
  readonly isShared: (path: TreePath) => boolean
  /** What each hub of this site has, but this one has lost, though it may never have seen it in this run. */
  readonly lacks: () => Promise<readonly TreePath[]>
  /** Whether the file here is good, but older than `content`, by what both say. */
  readonly isNewer: (path: TreePath, content: Uint8Array) => Promise<boolean>
  /** All files with their SHA-256 in hexadecimal; undefined for a damaged file of the state. */
  readonly hashes: () => Promise<readonly (readonly [TreePath, string | undefined])[]>
  /**
   * Waits until the disk has all that was written, or that changed() or hashes() found. `onProgress` is called with each
   * file that the disk has taken: very many take a slow disk a long time.
   */
  readonly sync: (onProgress?: () => void) => Promise<void>
  /** Removes the files that are not in the list, as far as `removals` lets it. Gives those that stay all the same. */
  readonly keepOnly: (paths: ReadonlySet<TreePath>, removals?: Removals) => Promise<readonly TreePath[]>
}

export interface HubMemberDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly tree: SiteTree
  /** Stores durably. */
  readonly save: (term: StoredTerm) => Promise<void>
  readonly connect: (hub: string) => HubConnection
  /** Serves the site until the signal. If it ends before, or rejects, the member ends with it. */
  readonly act: (term: number, signal: AbortSignal) => Promise<void>
  /** Whether the operator has promoted this hub since the last call. */
  readonly takePromotion: () => boolean
}

export interface HubMemberInit {
  /** All hubs of the site file, in its order, as `address:port`. */
  readonly hubs: readonly string[]
  readonly own: string
  readonly stored: StoredTerm | undefined
}

/** For the status page. */
export interface HubMemberState {
  readonly term: number
  readonly role: TermState['role']['is']
  readonly leader: string | undefined
  readonly members: readonly string[]
}

const TICK_MS = 250
const BEAT_MS = 1000
const ANSWER_MS = 2000
const SCAN_MS = 1000
/** Of one message. Each file is synced to the disk. */
const MAX_FILES = 100
const MAX_OCTETS = MAX_FILE
/** The last changes: a hub that lacks older ones compares all files instead. */
const MAX_CHANGES = 10_000
/** As long as requests of nodes may take: if the disk takes nothing for so long, all their writes have failed. */
const DISK_MS = 10_000
/** A look at very many files takes some seconds on a small machine. */
const SLOW_SCAN_MS = 30_000
/** An acting hub that has written nothing for so long tries whether the disk still takes it. */
const TRY_MS = 5000

export class HubMember {
  readonly #deps: HubMemberDeps
  readonly #init: HubMemberInit
  readonly #peers: ReadonlyMap<string, HubConnection>
  readonly #saves = new SerialQueue()
  readonly #stores = new SerialQueue()
  readonly #notes = new SerialQueue()
  readonly #waiting = new Set<() => void>()
  /** The index at which each file last changed, in the present term of this hub, oldest first: the last MAX_CHANGES. */
  readonly #indexes = new Map<TreePath, number>()
  /** Changes up to this index may be missing from #indexes. */
  #forgotten = 0
  /** The work that only a disk that answers ends. */
  readonly #disk = { save: new DiskWork(), scan: new DiskWork(), sync: new DiskWork() }
  /** The first version of the office in which each hub got all files, and after which it gets changes. */
  readonly #wholeOf = new Map<string, Version>()
  #state: TermState
  #saved: StoredTerm | undefined
  /** The last version whose files are on the disk of this machine: what this hub has after a power loss. */
  #durable: Version
  /** What this hub had on its disk when it came to act. */
  #before: Version | undefined
  /** Why something last failed, by what. */
  readonly #troubles = new Map<string, string>()
  /** The version from which #indexes counts. */
  #counted: Version | undefined
  #asked: unknown
  #office: { readonly term: number; readonly stop: AbortController; readonly ended: Promise<void> } | undefined
  #failed: { readonly error: unknown } | undefined

  constructor(deps: HubMemberDeps, init: HubMemberInit) {
    this.#deps = deps
    this.#init = init
    this.#peers = new Map(init.hubs.filter((hub) => hub !== init.own).map((hub) => [hub, deps.connect(hub)]))
    this.#state = startTerm(init.own, init.stored, deps.clock.monotonic())
    this.#saved = init.stored
    this.#durable = this.#state.version
  }

  state(): HubMemberState {
    const { term, role, leader } = this.#state
    return { term, leader, role: role.is, members: this.#deps.tree.members() }
  }

  /** Takes part until the signal. Throws the error of `act`, and that of the disk if it cannot read the files at all. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, tree } = this.#deps
    const over = new AbortController()
    const until = AbortSignal.any([signal, over.signal])
    await tree.changed()
    // It is older than this process: what has happened since is not known.
    if (this.#deps.takePromotion()) this.#deps.logger.warn('a promotion is ignored', { reason: 'PromotionIgnored' })
    const { stored } = this.#init
    if (stored !== undefined && this.#members().length <= 2) this.#move(resumed(this.#state, stored))
    const loops = [...this.#peers.keys()].flatMap((hub) => [this.#beat(hub, until), this.#feed(hub, until)])
    loops.push(this.#scan(until), this.#resign(until))
    try {
      while (!until.aborted && this.#failed === undefined) {
        await this.#tried('act', () => this.#tick(until))
        await clock.sleep(TICK_MS, until).catch(() => undefined)
      }
    } finally {
      over.abort(new ClusterApiError('Unavailable', 'the hub is stopping'))
      this.#wake()
      await this.#leave()
      for (const connection of this.#peers.values()) connection.close()
      await Promise.all(loops)
    }
    if (this.#failed !== undefined) throw this.#failed.error
  }

  /** Answers another hub, whose certificate has been checked. Throws ClusterApiError Invalid. */
  async answer(request: PeerRequest): Promise<PeerAnswer> {
    const { clock, tree } = this.#deps
    const members = this.#members()
    if (request.verb === 'vote') {
      const { state, granted } = onVoteRequest(this.#state, members, request, clock.monotonic())
      this.#move(state)
      return { ...(await this.#present()), granted }
    }
    const { state, accepted } = onLeader(this.#state, members, request, clock.monotonic())
    this.#move(state)
    const { files, whole, damaged = [], version, base } = request
    if (!accepted || (files === undefined && whole === undefined && version === undefined)) return this.#present()
    return this.#stores.run(async () => {
      // As long as this hub's own agent has not stopped, it may still write.
      const isCurrent = (): boolean =>
        this.#state.term === request.term && this.#state.role.is === 'following' && this.#office === undefined
      if (!isCurrent() || (base !== undefined && !isSame(base, this.#state.version))) return this.#present()
      const newer: TreePath[] = []
      for (const [path, content] of files ?? []) {
        const kept = await tree.write(path, content === null ? undefined : Buffer.from(content, 'base64'))
        if (kept === 'newer') newer.push(path)
      }
      if (whole !== undefined) {
        const present = new Map(await tree.hashes())
        const lacks = ([path, hash]: readonly [TreePath, string]): boolean =>
          present.get(path) !== hash && !tree.hasRefused(path, hash)
        const missing = whole.filter(lacks).map(([path]) => path)
        const offers = request.wants === undefined ? undefined : await this.#offers(request, present)
        if (missing.length > 0 || version === undefined || !isCurrent())
          return { ...(await this.#present()), missing, ...(offers === undefined ? {} : { offers }) }
        const named = new Set([...whole.map(([path]) => path), ...damaged])
        const kept = await tree.keepOnly(named, request.removals)
        this.#reportOnce('the acting hub has lost files, which this hub keeps', kept)
      }
      // The acting hub counts on what this one says it has.
      if (version !== undefined) await this.#disk.sync.of(clock, (onProgress) => tree.sync(onProgress))
      if (version !== undefined && isCurrent()) {
        this.#move(onStored(this.#state, version))
        this.#durable = version
      }
      if (newer.length === 0) return this.#present()
      return { ...(await this.#present()), offers: await this.#contents(newer) }
    })
  }

  /**
   * Resolves once a change of the files outlives this hub; without a change, if this hub acts. Throws ClusterApiError
   * Unavailable otherwise: the change may still come to count.
   */
  async confirm(changed: Changed | undefined, signal: AbortSignal): Promise<void> {
    const { term } = this.#state
    this.#checkServing(term)
    if (changed === undefined) return
    await this.#note(changed)
    const { version } = this.#state
    // Other hubs store the change meanwhile.
    await orAborted(this.#settle(), signal)
    while (!isConfirmed(this.#state, this.#members(), version)) {
      this.#checkServing(term)
      await this.#woken(signal)
    }
    this.#checkServing(term)
  }

  #checkServing(term: number): void {
    const { clock } = this.#deps
    if (this.#state.term !== term || !isServing(this.#state, this.#members(), clock.monotonic()))
      throw new ClusterApiError('Unavailable', 'this hub does not act: another one does, or will')
  }

  async #tick(signal: AbortSignal): Promise<void> {
    const { clock, tree, takePromotion } = this.#deps
    const members = this.#members()
    if (takePromotion()) {
      if (members.length === 2 && this.#state.role.is !== 'acting' && members.includes(this.#init.own))
        this.#move(promoted(this.#state))
      else this.#deps.logger.warn('a promotion is ignored', { reason: 'PromotionIgnored', hubs: members.length })
    }
    // A hub whose disk hangs could not serve.
    if (!this.#isStuck()) this.#move(whenSilent(this.#state, members, clock.monotonic()))
    const { role } = this.#state
    if (role.is === 'asking' && this.#asked !== role.sinceMs) {
      this.#asked = role.sinceMs
      void this.#tried('ask for votes', () => this.#askVotes(signal))
    }
    if (role.is === 'acting' && this.#counted !== role.first) {
      await this.#present()
      const paths = await this.#notes.run(() => this.#disk.scan.of(clock, () => tree.changed()))
      await unlessAborted(orAborted(this.#settle(), signal), signal)
      this.#indexes.clear()
      this.#forgotten = 0
      this.#remember(paths, role.first.index)
      this.#counted = role.first
      this.#wake()
    }
    await this.#takeOffice(signal)
    await this.#admit()
  }

  async #takeOffice(signal: AbortSignal): Promise<void> {
    const { clock, act, logger } = this.#deps
    const { term, role } = this.#state
    const serves = this.#counted !== undefined && isServing(this.#state, this.#members(), clock.monotonic())
    const office = this.#office
    if (office !== undefined && (!serves || office.term !== term)) {
      logger.warn('this hub does not act any more', { reason: 'HubNotActing', term, leader: this.#state.leader })
      await this.#leave()
    }
    if (!serves || this.#office !== undefined || role.is !== 'acting' || this.#counted !== role.first) return
    logger.info('this hub acts', { term, hub: this.#init.own })
    const stop = new AbortController()
    const until = AbortSignal.any([stop.signal, signal])
    const ended = act(term, until).then(
      () => {
        if (!until.aborted) this.#failed ??= { error: undefined }
      },
      (error: unknown) => {
        if (!until.aborted) this.#failed ??= { error }
      },
    )
    this.#office = { term, stop, ended }
  }

  async #leave(): Promise<void> {
    const office = this.#office
    if (office === undefined) return
    office.stop.abort(new ClusterApiError('Unavailable', 'this hub does not act any more'))
    await office.ended
    this.#office = undefined
  }

  /** A hub that has all files may vote. One is admitted at a time, so that majorities before and after have a hub in common. */
  async #admit(): Promise<void> {
    const { tree, logger } = this.#deps
    const { role, version } = this.#state
    const members = tree.members()
    if (role.is !== 'acting' || this.#office === undefined || !isConfirmed(this.#state, members, version)) return
    const ready = this.#init.hubs.find((hub) => !members.includes(hub) && this.#wholeOf.get(hub) === role.first)
    if (ready === undefined) return
    const next = this.#init.hubs.filter((hub) => members.includes(hub) || hub === ready)
    // Of two, one that the site file does not name any more has no vote.
    const others = members.length <= 2 ? [] : members.filter((member) => !next.includes(member))
    await tree.setMembers([...others, ...next])
    await this.#note()
    logger.info('another hub follows', { hub: ready, hubs: next.length })
  }

  async #askVotes(signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps
    const request = voteRequest(this.#state)
    if (request === undefined) return
    await this.#present()
    const ask = async (from: string, connection: HubConnection): Promise<void> => {
      const answer = await this.#ask(connection, { verb: 'vote', ...request }, signal)
      if (answer === undefined) return
      const { term, granted = false } = answer
      this.#move(onVote(this.#state, this.#members(), request, { from, term, granted }, clock.monotonic()))
    }
    await Promise.all([...this.#peers].map(([hub, connection]) => ask(hub, connection)))
  }

  /** Tells one hub again and again that this one acts. */
  async #beat(hub: string, signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps
    const connection = this.#connection(hub)
    while (!signal.aborted) {
      if (this.#state.role.is === 'acting')
        await this.#tried('tell another hub that it acts', () => this.#sendStates(hub, connection, {}, signal))
      await unlessAborted(clock.sleep(this.#state.role.is === 'acting' ? BEAT_MS : TICK_MS, signal), signal)
    }
  }

  /** Brings one hub the files that it lacks. */
  async #feed(hub: string, signal: AbortSignal): Promise<void> {
    const connection = this.#connection(hub)
    while (!signal.aborted) {
      const { role, version, term } = this.#state
      const stored = role.is === 'acting' ? role.stored.get(hub) : undefined
      const hasAll = role.is === 'acting' && this.#wholeOf.get(hub) === role.first
      const isIdle = hasAll && stored !== undefined && isSame(stored, version)
      if (role.is !== 'acting' || this.#counted !== role.first || stored === undefined || isIdle) {
        await this.#woken(signal).catch(() => undefined)
        continue
      }
      const knowsChanges = hasAll && stored.term === term && stored.index >= this.#forgotten
      const isSent = await this.#tried('send files to another hub', () =>
        knowsChanges
          ? this.#sendChanges(hub, connection, stored, signal)
          : this.#sendWhole(hub, connection, stored, signal),
      )
      if (isSent === true) this.#wholeOf.set(hub, role.first)
      else await this.#deps.clock.sleep(BEAT_MS, signal).catch(() => undefined)
    }
  }

  async #sendChanges(hub: string, connection: HubConnection, base: Version, signal: AbortSignal): Promise<boolean> {
    const { version } = this.#state
    const paths = [...this.#indexes].flatMap(([path, index]) => (index > base.index ? [path] : []))
    const sent = await this.#sendFiles(hub, connection, { paths, base, version }, signal)
    if (sent === undefined) return false
    // The other hub may have what is damaged here.
    return paths.every((path) => sent.has(path)) || this.#sendWhole(hub, connection, version, signal)
  }

  /** `stored`: what the other hub has. */
  async #sendWhole(hub: string, connection: HubConnection, stored: Version, signal: AbortSignal): Promise<boolean> {
    // A hub that is yet to get all files may have those of an earlier site.
    const isMember = this.#members().includes(hub)
    // Before the first term, every hub says that it has version 0, whatever it has.
    const isEqual = isMember && this.#forgotten === 0 && stored.term > 0 && isSame(stored, this.#before)
    if (isEqual) await this.#note()
    const { version, term } = this.#state
    const whole = new Map<TreePath, string>()
    const bad: TreePath[] = []
    for (const [path, hash] of await this.#deps.tree.hashes()) {
      if (hash === undefined) bad.push(path)
      else whole.set(path, hash)
    }
    const lost = [...new Set([...bad, ...(await this.#deps.tree.lacks())])]
    this.#reportOnce('the disk of this hub has lost files, or damaged them', lost)
    // Hubs of earlier releases keep and give back only what is named here.
    const damaged = isMember ? lost : lost.filter((path) => !this.#deps.tree.isShared(path))
    const removals = isMember ? 'marked' : 'all'
    // What a hub that was equal to this one has, and this one has not, was lost here, unless it was removed in this term.
    if (isEqual && !(await this.#sendRemovals(hub, connection, whole, signal))) return false
    const wants = isEqual ? 'lost' : damaged.length > 0 ? 'damaged' : undefined
    const answer = await this.#sendStates(hub, connection, { whole: [...whole], damaged, wants, removals }, signal)
    if (answer?.missing === undefined) return false
    const offers = answer.offers ?? []
    if (await this.#takeBack(hub, term, offers)) return false
    if (offers.length > 0 && !(await this.#refuse(hub, connection, offers, signal))) return false
    const sent = await this.#sendFiles(hub, connection, { paths: answer.missing }, signal)
    if (sent === undefined) return false
    // A file may have changed since; the change has a later version.
    for (const [path, hash] of sent) {
      if (hash === undefined) whole.delete(path)
      else whole.set(path, hash)
    }
    const last = await this.#sendStates(hub, connection, { whole: [...whole], damaged, version, removals }, signal)
    return last !== undefined && (last.missing ?? []).length === 0
  }

  /** What this hub has removed in this term must not fill the answer that is to hold what it has lost. */
  async #sendRemovals(
    hub: string,
    connection: HubConnection,
    whole: ReadonlyMap<TreePath, string>,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { tree } = this.#deps
    const paths: TreePath[] = []
    for (const path of this.#indexes.keys())
      if (!whole.has(path) && (await tree.read(path)) === undefined) paths.push(path)
    return paths.length === 0 || (await this.#sendFiles(hub, connection, { paths }, signal)) !== undefined
  }

  /** Stores what the disk of this hub has lost. Gives whether that changed anything. */
  async #takeBack(hub: string, term: number, offers: readonly (readonly [TreePath, string])[]): Promise<boolean> {
    const { tree, logger } = this.#deps
    if (offers.length === 0) return false
    let files = 0
    const isOver = await this.#notes.run(async () => {
      for (const [path, content] of offers) {
        if (this.#state.term !== term || this.#state.role.is !== 'acting') return true
        // What changed in this term was not lost by a restart. A removal is in #indexes or has its mark: a look at the files
        // at the same time would put it from one into the other.
        const isDamaged = (await tree.read(path)) === 'damaged'
        const octets = Buffer.from(content, 'base64')
        if (!isDamaged && this.#indexes.has(path) && !(await tree.isNewer(path, octets))) continue
        if (await tree.restore(path, octets)) files += 1
      }
      return false
    })
    if (isOver) return true
    if (files === 0) return false
    logger.warn('another hub had files that the disk of this hub has lost', {
      reason: 'StateFolderUnusable',
      hub,
      files,
    })
    await this.#note()
    return true
  }

  /**
   * Sends what counts of offers that this hub has not taken. An answer holds only so many: until these are settled, what
   * was lost may have had no place in it, and the other hub must not remove that. Gives whether none was to be sent.
   */
  async #refuse(
    hub: string,
    connection: HubConnection,
    offers: readonly (readonly [TreePath, string])[],
    signal: AbortSignal,
  ): Promise<boolean> {
    const sent = await this.#sendFiles(hub, connection, { paths: offers.map(([path]) => path) }, signal)
    // What is damaged here is offered again each time, if its content passes only for a hub of another release.
    return sent?.size === 0
  }

  /** What this hub has, and the acting one has lost. */
  async #offers(
    { wants, whole = [], damaged = [] }: Extract<PeerRequest, { verb: 'follow' }>,
    present: ReadonlyMap<TreePath, string | undefined>,
  ): Promise<readonly (readonly [TreePath, string])[]> {
    const { tree } = this.#deps
    const named = new Set([...whole.map(([path]) => path), ...damaged])
    const lost = wants === 'lost' ? [...present.keys()].filter((path) => !named.has(path) && tree.isKept(path)) : []
    return this.#contents([...damaged, ...lost].filter((path) => present.get(path) !== undefined))
  }

  /** As many as one answer holds. */
  async #contents(paths: readonly TreePath[]): Promise<readonly (readonly [TreePath, string])[]> {
    const { tree } = this.#deps
    const offers: [TreePath, string][] = []
    let octets = 0
    for (const path of paths) {
      const content = await tree.read(path)
      if (content === 'damaged' || content === undefined) continue
      const text = Buffer.from(content).toString('base64')
      // The rest is asked for next.
      if (offers.length >= MAX_OFFERS || octets + text.length > MAX_OCTETS) break
      offers.push([path, text])
      octets += text.length
    }
    return offers
  }

  /** Gives the hashes of what was sent; undefined if the other hub did not take it. */
  async #sendFiles(
    hub: string,
    connection: HubConnection,
    init: { readonly paths: readonly TreePath[]; readonly base?: Version; readonly version?: Version },
    signal: AbortSignal,
  ): Promise<ReadonlyMap<TreePath, string | undefined> | undefined> {
    const { paths, base, version } = init
    const { term } = this.#state
    const hashes = new Map<TreePath, string | undefined>()
    let files: [TreePath, string | null][] = []
    let octets = 0
    const send = async (isLast: boolean): Promise<boolean> => {
      const answer = await this.#sendStates(hub, connection, { files, base, ...(isLast ? { version } : {}) }, signal)
      files = []
      octets = 0
      // What it has is newer than what it got.
      await this.#takeBack(hub, term, answer?.offers ?? [])
      return answer !== undefined && (base === undefined || isSame(answer.version, isLast ? version : base))
    }
    for (const path of paths) {
      const content = await this.#deps.tree.read(path)
      // The other hub may have a good one. This file is sent once it is written again.
      if (content === 'damaged') continue
      hashes.set(path, content === undefined ? undefined : createHash('sha256').update(content).digest('hex'))
      const text = content === undefined ? null : Buffer.from(content).toString('base64')
      const size = text?.length ?? 0
      if ((files.length >= MAX_FILES || octets + size > MAX_OCTETS) && files.length > 0 && !(await send(false)))
        return undefined
      files.push([path, text])
      octets += size
    }
    return (await send(true)) ? hashes : undefined
  }

  /**
   * Sends a message of the acting hub and takes the answer into account. A look at very many files takes seconds: if this
   * hub has come to follow another one meanwhile, it must say nothing in the term of that one.
   */
  async #sendStates(
    hub: string,
    connection: HubConnection,
    message: Omit<Extract<PeerRequest, { verb: 'follow' }>, 'verb' | 'term' | 'hub'>,
    signal: AbortSignal,
  ): Promise<PeerAnswer | undefined> {
    const { term, own, role } = this.#state
    if (role.is !== 'acting' || (message.version !== undefined && message.version.term !== term)) return undefined
    // The term must be on the disk before another hub hears of it.
    await this.#present()
    const sentMs = this.#deps.clock.monotonic()
    const isBeat = message.files === undefined && message.whole === undefined
    const answer = await this.#ask(connection, { verb: 'follow', term, hub: own, ...message }, signal, isBeat)
    this.#move(onAnswer(this.#state, hub, term, answer === undefined ? undefined : { ...answer, sentMs }))
    this.#wake()
    return answer
  }

  /** Undefined if there is no answer. */
  async #ask(
    connection: HubConnection,
    request: PeerRequest,
    signal: AbortSignal,
    isShort = true,
  ): Promise<PeerAnswer | undefined> {
    const late = new AbortController()
    const cancel = isShort
      ? this.#deps.clock.setTimer(ANSWER_MS, () => late.abort(new Error('no answer in time')))
      : undefined
    try {
      return await connection.askPeer(request, AbortSignal.any([signal, late.signal]))
    } catch (error) {
      if (error instanceof ClusterApiError && error.code !== 'Unavailable')
        this.#deps.logger.warn('another hub refuses this one', { reason: 'HubRefused', why: messageOf(error) })
      return undefined
    } finally {
      cancel?.()
    }
  }

  /** Finds what the agent, the user and commands have changed in the files. */
  async #scan(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#deps
    let waitMs = SCAN_MS
    while (!signal.aborted) {
      await unlessAborted(clock.sleep(waitMs, signal), signal)
      if (this.#office === undefined) continue
      const began = clock.monotonic()
      let notedMs = began
      try {
        await this.#note()
        notedMs = clock.monotonic()
        // A disk that hangs must not keep the process from its end.
        await unlessAborted(orAborted(this.#settle(), signal), signal)
      } catch (error) {
        logger.warn('cannot read the files of the site', { reason: 'StateFolderUnusable', why: messageOf(error) })
      }
      // At most a twentieth of the time. The disk's time does not count: other hubs lack what is not found.
      waitMs = Math.max(SCAN_MS, (notedMs - began) * 20)
    }
  }

  async #note(only?: Changed): Promise<void> {
    const { clock, tree } = this.#deps
    await this.#notes.run(async () => {
      const { role } = this.#state
      // changed() tells of each change only once, and the next office begins with a look at all files.
      if (role.is !== 'acting' || this.#counted !== role.first) return
      const paths = await this.#disk.scan.of(clock, () => tree.changed(only))
      if (paths.length === 0) return
      const next = onChange(this.#state)
      if (next.role.is !== 'acting' || next.role.first !== role.first) return
      this.#remember(paths, next.version.index)
      this.#move(next)
      this.#wake()
    })
  }

  /** Each renewal of a Lease is a file with another path, so what is remembered has an end. */
  #remember(paths: readonly TreePath[], index: number): void {
    for (const path of paths) {
      this.#indexes.delete(path)
      this.#indexes.set(path, index)
    }
    for (const [path, changed] of this.#indexes) {
      if (this.#indexes.size <= MAX_CHANGES) break
      this.#indexes.delete(path)
      this.#forgotten = changed
    }
  }

  /** A hub whose disk hangs or is full takes no writes: it leaves its office to others, if they are enough without it. */
  async #resign(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#deps
    while (await unlessAborted(clock.sleep(BEAT_MS, signal), signal)) {
      this.#tryDisk()
      if (this.#state.role.is !== 'acting' || !this.#isStuck()) continue
      const next = resigned(this.#state, this.#members(), clock.monotonic())
      if (next === this.#state) continue
      logger.warn('the disk takes nothing: another hub is to act', { reason: 'StateFolderUnusable', term: next.term })
      this.#move(next)
    }
  }

  #tryDisk(): void {
    const { clock, save, tree } = this.#deps
    const { save: saving, sync: syncing } = this.#disk
    const [last, nowMs] = [this.#saved, clock.monotonic()]
    const isDue = this.#state.role.is === 'acting' && this.#members().length > 2 && saving.idleMs(nowMs) >= TRY_MS
    if (last !== undefined && !saving.runs && (isDue || saving.fails))
      void this.#tried('store its term', () => this.#saves.run(() => saving.of(clock, () => save(this.#saved ?? last))))
    if (syncing.fails && !syncing.runs)
      void this.#tried('sync its files', () => syncing.of(clock, (onProgress) => tree.sync(onProgress)))
  }

  #isStuck(): boolean {
    const { save, scan, sync } = this.#disk
    const now = this.#deps.clock.monotonic()
    return save.troubleMs(now) >= DISK_MS || sync.troubleMs(now) >= DISK_MS || scan.runsMs(now) >= SLOW_SCAN_MS
  }

  /** Reports files once, and again when they are others. */
  #reportOnce(what: string, paths: readonly TreePath[]): void {
    const named = [...paths].sort().join(' ')
    if (named === '') this.#troubles.delete(what)
    else if (this.#troubles.get(what) !== named) {
      this.#troubles.set(what, named)
      const some = { first: paths[0], files: paths.length }
      this.#deps.logger.warn(what, { reason: 'StateFolderUnusable', ...some })
    }
  }

  /** What the disk or another hub refuses is tried again with the next beat: it must not end the process. */
  async #tried<T>(what: string, work: () => Promise<T>): Promise<T | undefined> {
    try {
      const result = await work()
      this.#troubles.delete(what)
      return result
    } catch (error) {
      const why = messageOf(error)
      if (this.#troubles.get(what) !== why)
        this.#deps.logger.warn(`this hub cannot ${what}`, { reason: 'StateFolderUnusable', why })
      this.#troubles.set(what, why)
      return undefined
    }
  }

  /** The hubs that vote. Of two, the operator has replaced one that the site file does not name any more. */
  #members(): readonly string[] {
    const members = this.#deps.tree.members()
    return members.length > 2 ? members : members.filter((member) => this.#init.hubs.includes(member))
  }

  #move(next: TermState): void {
    if (next.role.is === 'acting' && this.#state.role.is !== 'acting') this.#before = this.#durable
    const hasHeard = next.leader !== undefined && next.leader !== this.#state.leader
    this.#state = next
    if (hasHeard && next.role.is === 'following')
      this.#deps.logger.info('another hub of the site acts', { term: next.term, hub: next.leader })
  }

  /** The present state, once it is on the disk: of the version, what is there. */
  async #present(): Promise<PeerAnswer> {
    return this.#saves.run(async () => {
      const { term, votedFor, version, role } = this.#state
      const next: StoredTerm = { term, votedFor, version: this.#durable, acts: role.is === 'acting' }
      const last = this.#saved
      const isSaved =
        last !== undefined &&
        last.term === term &&
        last.votedFor === votedFor &&
        last.acts === next.acts &&
        isSame(last.version, next.version)
      if (!isSaved) await this.#disk.save.of(this.#deps.clock, () => this.#deps.save(next))
      this.#saved = next
      return { term, version }
    })
  }

  /**
   * Waits until this machine keeps the present version through a power loss. Before that this hub must not count itself
   * among those that have it. Throws ClusterApiError Unavailable.
   */
  async #settle(): Promise<void> {
    const { term, version } = this.#state
    try {
      await this.#disk.sync.of(this.#deps.clock, (onProgress) => this.#deps.tree.sync(onProgress))
    } catch (cause) {
      throw new ClusterApiError('Unavailable', `the disk does not take the files of the site: ${messageOf(cause)}`, {
        cause,
      })
    }
    if (this.#state.term === term && this.#state.role.is === 'acting' && isOlder(this.#durable, version))
      this.#durable = version
    await this.#present()
  }

  #connection(hub: string): HubConnection {
    const connection = this.#peers.get(hub)
    if (connection === undefined) throw new Error(`no hub ${hub}`)
    return connection
  }

  #wake(): void {
    for (const wake of [...this.#waiting]) wake()
  }

  /** Resolves at the next answer or change, and after a second in any case. */
  async #woken(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<undefined>()
    const wake = (): void => resolve(undefined)
    this.#waiting.add(wake)
    const cancel = this.#deps.clock.setTimer(BEAT_MS, wake)
    try {
      await orAborted(promise, signal)
    } finally {
      cancel()
      this.#waiting.delete(wake)
    }
  }
}

/** What one kind of work with the disk shows about it. */
class DiskWork {
  #count = 0
  /** When the disk last showed a sign, or work was last given to an idle one. */
  #sinceMs = -Infinity
  #failedMs: number | undefined

  async of<T>(clock: Clock, work: (onProgress: () => void) => Promise<T>): Promise<T> {
    if (this.#count === 0) this.#sinceMs = clock.monotonic()
    this.#count += 1
    try {
      const result = await work(() => (this.#sinceMs = clock.monotonic()))
      this.#failedMs = undefined
      return result
    } catch (error) {
      this.#failedMs ??= clock.monotonic()
      throw error
    } finally {
      this.#count -= 1
      this.#sinceMs = clock.monotonic()
    }
  }

  get runs(): boolean {
    return this.#count > 0
  }

  /** Whether the last work failed. */
  get fails(): boolean {
    return this.#failedMs !== undefined
  }

  idleMs(nowMs: number): number {
    return this.#count > 0 ? 0 : nowMs - this.#sinceMs
  }

  runsMs(nowMs: number): number {
    return this.#count > 0 ? nowMs - this.#sinceMs : 0
  }

  /** How long no work has come to a good end, though there was some. */
  troubleMs(nowMs: number): number {
    return Math.max(this.runsMs(nowMs), nowMs - (this.#failedMs ?? nowMs))
  }
}

function isSame(a: Version, b: Version | undefined): boolean {
  return b !== undefined && a.term === b.term && a.index === b.index
}
