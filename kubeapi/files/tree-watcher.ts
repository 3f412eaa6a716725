/**
 * Reports which files below a folder changed. One inotify watch per folder, set before the folder is listed, so that
 * nothing falls in between; rescan() finds what the kernel's queue may have lost.
 */
import { type FSWatcher, type Stats, lstatSync, readdirSync, statSync, watch } from 'node:fs'
import { join } from 'node:path'
import { isMissing } from './atomic-write.ts'

/** moved: put in place complete, by a rename in the same folder. touched: anything else, perhaps half-written. */
export type FileEvent = 'found' | 'moved' | 'touched'

export interface TreeWatcherDeps {
  /** A file exists, changed or vanished; also a vanished folder. The callee looks for itself. */
  readonly onFile: (path: string, event: FileEvent) => void
  /** A folder cannot be read or watched. */
  readonly onError: (path: string, error: unknown) => void
}

export interface TreeWatcherInit {
  readonly root: string
  /** True for names that are passed by, with all below. */
  readonly skip: (name: string, path: string) => boolean
}

interface WatchedFolder {
  readonly watcher: FSWatcher
  readonly inode: number
  /** Name of the last rename event: the first half of a rename inside the folder. */
  lastRenamed: string | undefined
}

export class TreeWatcher {
  readonly #deps: TreeWatcherDeps
  readonly #init: TreeWatcherInit
  readonly #folders = new Map<string, WatchedFolder>()
  /** Folders that the last look could not list, the root among them while it is missing. */
  readonly #unlisted = new Set<string>()
  #closed = false

  constructor(deps: TreeWatcherDeps, init: TreeWatcherInit) {
    this.#deps = deps
    this.#init = init
  }

  /** Starts, or looks again at everything: onFile('found') for each file, new watches where folders are new. */
  rescan(): void {
    if (this.#closed) return
    this.#unlisted.clear()
    this.#addFolder(this.#init.root, true)
  }

  /** False while the root is missing, or another folder is in its place: then a rescan is due. */
  get rooted(): boolean {
    const watched = this.#folders.get(this.#init.root)
    return watched !== undefined && this.#stat(this.#init.root)?.ino === watched.inode
  }

  /** False while the root, or a folder below, cannot be listed: what is in it is not known. */
  get complete(): boolean {
    return this.#unlisted.size === 0
  }

  close(): void {
    this.#closed = true
    for (const path of [...this.#folders.keys()]) this.#dropFolder(path)
  }

  #addFolder(path: string, always: boolean): void {
    const stats = this.#stat(path)
    if (stats === undefined) {
      this.#dropFolder(path)
      if (path === this.#init.root) this.#failed(path, new Error('no such folder'))
      return
    }
    if (!stats.isDirectory()) {
      this.#failed(path, new Error('not a folder'))
      return
    }
    const known = this.#folders.get(path)
    if (known !== undefined && known.inode !== stats.ino) this.#dropFolder(path)
    else if (known !== undefined && !always) return
    try {
      // Without a watch (the kernel's limit, perhaps) the rescans still find what changes.
      if (!this.#folders.has(path)) this.#watch(path, stats.ino)
    } catch (error) {
      this.#deps.onError(path, error)
    }
    try {
      this.#list(path, always)
    } catch (error) {
      if (!isMissing(error)) this.#failed(path, error)
      this.#dropFolder(path)
    }
  }

  #failed(path: string, error: unknown): void {
    this.#unlisted.add(path)
    this.#deps.onError(path, error)
  }

  #list(path: string, always: boolean): void {
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      const below = join(path, entry.name)
      if (this.#init.skip(entry.name, below)) continue
      if (entry.isDirectory()) this.#addFolder(below, always)
      else this.#deps.onFile(below, 'found')
    }
  }

  #watch(path: string, inode: number): void {
    const watcher = watch(path, (type, name) => this.#onEvent(path, type, name))
    watcher.on('error', (error) => {
      this.#dropFolder(path)
      if (!isMissing(error)) this.#deps.onError(path, error)
    })
    this.#folders.set(path, { watcher, inode, lastRenamed: undefined })
  }

  #onEvent(folder: string, type: string, name: string | null): void {
    const watched = this.#folders.get(folder)
    if (this.#closed || watched === undefined || name === null) return
    const previous = watched.lastRenamed
    watched.lastRenamed = type === 'rename' ? name : undefined
    const path = join(folder, name)
    if (this.#init.skip(name, path)) return
    // Links to folders are not followed, as #list() does not: they may lead in circles.
    if (this.#stat(path, lstatSync)?.isDirectory() === true) {
      this.#addFolder(path, false)
      return
    }
    // A folder removed, renamed away, or replaced by a file.
    if (this.#folders.has(path)) this.#dropFolder(path)
    const moved =
      type === 'rename' && previous !== undefined && previous !== name && !this.#exists(join(folder, previous))
    this.#deps.onFile(path, moved ? 'moved' : 'touched')
  }

  /** Ends the watches of a folder and of all below. */
  #dropFolder(path: string): void {
    for (const [below, { watcher }] of [...this.#folders]) {
      if (below !== path && !below.startsWith(`${path}/`)) continue
      this.#folders.delete(below)
      watcher.close()
    }
  }

  #exists(path: string): boolean {
    return this.#stat(path) !== undefined
  }

  #stat(path: string, stat: typeof statSync = statSync): Stats | undefined {
    try {
      return stat(path, { throwIfNoEntry: false })
    } catch {
      return undefined
    }
  }
}
