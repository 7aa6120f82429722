//! The attribute `#[tool]` of `endstop-client`.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Code;
use quote::{format_ident, quote};
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, Expr, FnArg, ItemFn, Lit, Meta, Pat, ReturnType, parse_macro_input};

/// Makes a tool from an async function.
///
/// The name of the function is the name of the tool, its documentation is the description for the model,
/// and its parameters make the schema of the arguments: each type must implement `Deserialize` and
/// `JsonSchema`. The function returns a `Result`; the model gets the text of an error.
///
/// `#[tool(idempotent)]` marks a tool that may run again if it is not known whether it has run.
///
/// The function becomes a value of the same name that implements `Tool`; `name::call(…)` calls the
/// function itself.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    expand(&options.into(), &function).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(options: &Code, function: &ItemFn) -> Result<Code, Error> {
    let is_idempotent = match options.to_string().as_str() {
        "" => false,
        "idempotent" => true,
        other => {
            let message = format!("unknown option `{other}`: expected `idempotent`");
            return Err(Error::new(options.span(), message));
        }
    };
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new(signature.span(), "a tool is an `async fn`"));
    }
    if !signature.generics.params.is_empty() {
        let message = "a tool has no type parameters or lifetimes: its arguments come as JSON";
        return Err(Error::new(signature.generics.span(), message));
    }
    if matches!(signature.output, ReturnType::Default) {
        let message = "a tool returns a `Result`: its text goes to the model";
        return Err(Error::new(signature.span(), message));
    }
    let (name, visibility, body) = (&signature.ident, &function.vis, &function.block);
    let output = &signature.output;
    let documentation = documentation(&function.attrs);
    let others = function.attrs.iter();
    let parameters: Vec<Parameter> =
        signature.inputs.iter().map(parameter).collect::<Result<_, _>>()?;
    let inputs = parameters.iter().map(|known| {
        let (name, of) = (&known.name, &known.of);
        quote! { #name: #of }
    });
    let fields = parameters.iter().map(|known| {
        let (name, of, attributes) = (&known.name, &known.of, &known.attributes);
        quote! { #(#attributes)* #name: #of }
    });
    let names: Vec<_> = parameters.iter().map(|known| &known.name).collect();
    let text = name.to_string();
    let arguments = format_ident!("Arguments");
    Ok(quote! {
        #(#others)*
        #[allow(non_camel_case_types, reason = "the name of the function")]
        #[derive(Clone, Copy, Debug, Default)]
        #visibility struct #name;

        impl #name {
            /// Calls the function.
            #[allow(clippy::unused_async, reason = "tools are async functions")]
            #visibility async fn call(#(#inputs),*) #output #body
        }

        const _: () = {
            use ::endstop_client::__private as private;

            #[derive(private::serde::Deserialize, private::schemars::JsonSchema)]
            #[serde(crate = "::endstop_client::__private::serde", deny_unknown_fields)]
            #[schemars(crate = "::endstop_client::__private::schemars")]
            struct #arguments { #(#fields),* }

            impl ::endstop_client::Tool for #name {
                fn definition(&self) -> private::Definition {
                    private::Definition {
                        name: #text.to_owned(),
                        description: #documentation.to_owned(),
                        schema: private::schema_of::<#arguments>(),
                    }
                }

                fn is_idempotent(&self) -> bool {
                    #is_idempotent
                }

                fn run<'a>(
                    &'a self,
                    call: &'a private::Call<private::Whole>,
                ) -> ::endstop_client::ToolFuture<'a> {
                    ::std::boxed::Box::pin(async move {
                        let #arguments { #(#names),* } = private::tool_arguments(call)?;
                        private::tool_output(#name::call(#(#names),*).await)
                    })
                }
            }
        };
    })
}

/// A parameter of the function.
struct Parameter {
    name: syn::Ident,
    of: syn::Type,
    attributes: Vec<Attribute>,
}

fn parameter(input: &FnArg) -> Result<Parameter, Error> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new(input.span(), "a tool is a free function, without `self`"));
    };
    let Pat::Ident(pattern) = &*typed.pat else {
        return Err(Error::new(typed.pat.span(), "a parameter of a tool is a name and a type"));
    };
    if let syn::Type::Reference(reference) = &*typed.ty {
        let message = "a parameter of a tool owns its value: `String`, not `&str`";
        return Err(Error::new(reference.span(), message));
    }
    Ok(Parameter {
        name: pattern.ident.clone(),
        of: (*typed.ty).clone(),
        attributes: typed.attrs.clone(),
    })
}

/// Returns the text of the doc comments.
fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let Meta::NameValue(meta) = &attribute.meta else { return None };
        let Expr::Lit(value) = &meta.value else { return None };
        let Lit::Str(text) = &value.lit else { return None };
        meta.path.is_ident("doc").then(|| text.value().trim().to_owned())
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}
