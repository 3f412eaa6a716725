/**
 * The part of cytoscape that the page uses. tsconfig.json names it in place of the package's own types, which speak of
 * the types of a browser.
 */

export interface MapElement {
  readonly data: { readonly id: string; readonly label: string; readonly source?: string; readonly target?: string }
  readonly classes: string
  readonly position?: { readonly x: number; readonly y: number }
}

export interface MapStyle {
  readonly selector: string
  readonly style: Readonly<Record<string, string | number>>
}

export interface MapOptions {
  readonly container: object
  readonly elements: readonly MapElement[]
  readonly style: readonly MapStyle[]
  readonly layout: { readonly name: 'preset'; readonly fit: boolean; readonly padding: number }
  readonly autoungrabify: boolean
  readonly autounselectify: boolean
  readonly userZoomingEnabled: boolean
  readonly userPanningEnabled: boolean
  readonly boxSelectionEnabled: boolean
  /** Undefined: that of the screen. */
  readonly pixelRatio: number | undefined
}

export interface DrawnMap {
  destroy(): void
  getElementById(id: string): { data(name: 'label', value: string): void }
}

declare const cytoscape: (options: MapOptions) => DrawnMap
export { cytoscape as default }
