/**
 * Reports which files below a folder changed. Each folder has one inotify watch, set before the folder is listed, so
 * that no change is missed in between. rescan() finds changes whose events the kernel dropped.
 */
import { type FSWatcher, type Stats, lstatSync, readdirSync, statSync, watch } from 'node:fs'
import { join } from 'node:path'
import { isMissing } from './atomic-write.ts'

/**
 * moved: a complete file was put in place by a rename in the same folder. touched: any other change; the file may be
 * incomplete.
 */
export type FileEvent = 'found' | 'moved' | 'touched'

export interface TreeWatcherDeps {
  /**
   * Called if a file exists, changed or disappeared, or if a folder disappeared. The callee reads the path itself.
   * `stats` are those of a regular file, if the watcher has just looked.
   */
  readonly onFile: (path: string, event: FileEvent, stats?: Stats) => void
  /** Called if a folder cannot be read or watched. */
  readonly onError: (path: string, error: unknown) => void
}

export interface TreeWatcherInit {
  readonly root: string
  /** True for names that are ignored, with all below them. */
  readonly skip: (name: string, path: string) => boolean
}

interface WatchedFolder {
  readonly watcher: FSWatcher
  readonly inode: number
  /** Name of the last rename event, which may be the first half of a rename inside the folder. */
  lastRenamed: string | undefined
}

export class TreeWatcher {
  readonly #deps: TreeWatcherDeps
  readonly #init: TreeWatcherInit
  readonly #folders = new Map<string, WatchedFolder>()
  /** Folders that the last scan could not list, including the root while it is missing. */
  readonly #unlisted = new Set<string>()
  #closed = false

  constructor(deps: TreeWatcherDeps, init: TreeWatcherInit) {
    this.#deps = deps
    this.#init = init
  }

  /** Starts, or scans everything again: calls onFile('found') for each file, and watches new folders. */
  rescan(): void {
    if (this.#closed) return
    this.#unlisted.clear()
    this.#addFolder(this.#init.root, true)
  }

  /** False while the root is missing or has been replaced; a rescan is needed then. */
  get rooted(): boolean {
    const watched = this.#folders.get(this.#init.root)
    return watched !== undefined && this.#stat(this.#init.root)?.ino === watched.inode
  }

  /** False while the root or a folder below cannot be listed, so that its content is not known. */
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
      // Without a watch (the kernel's limit, perhaps), rescans still find changes.
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
    // Like #list(), it does not follow links to folders, since they may form cycles.
    const stats = this.#stat(path, lstatSync)
    if (stats?.isDirectory() === true) {
      this.#addFolder(path, false)
      return
    }
    // A folder was removed, moved away, or replaced by a file.
    if (this.#folders.has(path)) this.#dropFolder(path)
    const moved =
      type === 'rename' && previous !== undefined && previous !== name && !this.#exists(join(folder, previous))
    this.#deps.onFile(path, moved ? 'moved' : 'touched', stats?.isFile() === true ? stats : undefined)
  }

  /** Stops the watches of a folder and of all below it. */
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
