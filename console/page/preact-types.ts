/**
 * The part of preact and @preact/signals that the page uses. tsconfig.json names it in place of the packages' own types,
 * which bring all types of a browser into every file of the project, where they replace some of Node's.
 */

export interface VNode {
  readonly type: unknown
  readonly props: unknown
  readonly key: unknown
}

export type ComponentChildren = VNode | string | number | boolean | null | undefined | readonly ComponentChildren[]

type Component<P> = (props: P) => ComponentChildren

/** The attributes of an element, and what it calls. */
export interface ElementProps {
  readonly [name: string]: unknown
}

export declare function h(type: string, props: ElementProps, ...children: readonly ComponentChildren[]): VNode
export declare function h<P>(
  type: Component<P>,
  props: P & { readonly key?: string },
  ...children: readonly ComponentChildren[]
): VNode

/** Draws into an element of the document. */
export declare function render(node: VNode, parent: object): void

export interface Signal<T> {
  value: T
}

export declare function signal<T>(value: T): Signal<T>

/** Calls `run` at once, and whenever a signal that it read has changed, until what it gives is called. */
export declare function effect(run: () => void): () => void

/** Changes several signals; what reads them runs once, at the end. */
export declare function batch(run: () => void): void
